import childProcess from 'node:child_process'
import crypto from 'node:crypto'
import { url as debuggerUrl } from 'node:inspector'
import type { Registry } from 'prom-client'
import { systemClock } from '../shared/clock.ts'
import { type Config, type Defaults, defaultTurnLimit, type StoreConfig } from '../shared/config.ts'
import { noTracer } from '../shared/tracing/tracer.ts'
import type { UnhandledErrors } from '../shared/unhandled.ts'
import { forbidCalls } from './forbidden-calls.ts'
import { type NodeOptions, startNode } from './node.ts'
import { connectionsWithin, openFileLimit } from './ops/overload.ts'
import type { RoomDefinition } from './rooms/definition.ts'
import { developRooms, loadRooms, roomsHash } from './rooms/loader.ts'
import { startWatchdog } from './watchdog/watchdog.ts'

export { closeBuiltins } from './forbidden-calls.ts'

/** Options of `startDataplane`. By default there are no traces, and the process is no worker. */
export interface DataplaneOptions
  extends Required<Pick<NodeOptions, 'store' | 'log'>>,
    Pick<NodeOptions, 'tracer' | 'sharing' | 'answer'> {
  readonly config: Omit<Defaults<'dataplane'>, 'workers'> &
    StoreConfig &
    Pick<Config<'dataplane'>, 'roomsDir'>
  /** Reload a room type when its file is edited, and tell players what failing room logic threw. */
  readonly development?: boolean
}

/** A node as a process runs it. */
export interface RunningDataplane {
  readonly addresses: { readonly websocket: string; readonly admin: string }
  /** What it counts. */
  readonly registry: Registry
  /** The room types that it runs, as they are now. */
  rooms(): readonly RoomDefinition[]
  /** Deals with errors that nothing has handled. */
  readonly unhandled: UnhandledErrors
  /** Drains, hands over the rooms, and closes everything but the store; `drainMs` as in `RunningNode`. */
  close(drainMs?: number): Promise<void>
  /** Resolves when the node was drained over HTTP and has nothing left to do. */
  readonly ended: Promise<void>
}

/** Starts one node with the room types of `ROOMS_DIR`; resolves once it accepts clients. */
export async function startDataplane({
  config,
  store,
  log,
  tracer = noTracer,
  sharing,
  development = false,
  answer,
}: DataplaneOptions): Promise<RunningDataplane> {
  const { roomsDir: folder } = config
  const developed = development ? await developRooms(folder, log) : undefined
  const rooms = developed?.rooms ?? (await loadRooms(folder, log))
  log.info(
    { folder, rooms_hash: roomsHash(rooms) },
    `room types: ${rooms.map(({ type }) => type).join(', ')}`,
  )
  const codeHashes = Object.fromEntries(rooms.map(({ type, codeHash }) => [type, codeHash]))
  const settings = {
    ...watchdogSettings(config),
    codeHashes,
    ...(development && DEVELOPMENT),
  }
  const watchdog = startWatchdog(settings, { clock: systemClock, log })
  const { turns } = watchdog
  const maxConnections = development ? undefined : connectionsWithin(openFileLimit(), config.maxSessions, log)
  const node = await startNode({
    ...config,
    rooms,
    store,
    log,
    tracer,
    turns,
    revealFailures: development,
    ...(development && { cutOffMs: developmentLimit }),
    ...(answer && { answer }),
    ...(maxConnections !== undefined && { maxConnections }),
    ...(sharing && { sharing }),
  }).catch(async (error: unknown) => {
    await watchdog.close()
    throw error
  })
  watchdog.watch(() => node.roomCode.where())
  const allowCalls = forbidCalls({ process, childProcess, crypto }, () => node.roomCode.current !== undefined)
  const byType = new Map(rooms.map((definition) => [definition.type, definition]))
  const replace = (definition: RoomDefinition): void => {
    byType.set(definition.type, definition)
    node.replaceRoom(definition)
  }
  developed?.watch(replace)
  return {
    addresses: { websocket: node.wsUrl, admin: node.adminUrl },
    registry: node.registry,
    rooms: () => [...byType.values()],
    ended: node.drained,
    unhandled: node.unhandled,
    close: async (drainMs) => {
      developed?.close()
      await node.close(drainMs)
      allowCalls()
      await watchdog.close()
    },
  }
}

/** In development a turn is cut off after so long, and its process lives. The watchdog says before where it is. */
const DEVELOPMENT_CUT_OFF_MS = 2000
const developmentLimit = () => (debuggerUrl() === undefined ? DEVELOPMENT_CUT_OFF_MS : undefined)
const DEVELOPMENT = { limitMs: 1200, cutOffMs: DEVELOPMENT_CUT_OFF_MS }

/** A turn of a process that gets no CPU time may take so many times the limit, if the lease allows that. */
const LONGEST_STARVED = 3

const watchdogSettings = (
  config: DataplaneOptions['config'],
  limitMs = config.turnLimitMs ?? defaultTurnLimit(config.nodeLeaseMs),
) => ({
  limitMs,
  idleShare: Math.max(1 / LONGEST_STARVED, limitMs / (0.8 * config.nodeLeaseMs)),
  redisUrl: config.redisUrl,
  keyPrefix: config.keyPrefix,
  logLevel: config.logLevel,
  logFormat: config.logFormat,
  nodeId: config.nodeId ?? '',
  // A session that is away that long may still come back with the message.
  noteTtlMs: 1000 * Math.max(config.roomOrphanTtl, config.sessionResumeTtl),
  noteTimeoutMs: config.nodeLeaseMs,
})
