import { url as debuggerUrl } from 'node:inspector'
import type { Registry } from 'prom-client'
import { systemClock } from '../shared/clock.ts'
import { type Config, type Defaults, defaultTurnLimit, type StoreConfig } from '../shared/config.ts'
import { noTracer } from '../shared/tracing/tracer.ts'
import type { UnhandledErrors } from '../shared/unhandled.ts'
import { startWatchdog } from './features/suspects/watchdog.ts'
import { type NodeOptions, startNode } from './node.ts'
import { connectionsWithin, openFileLimit } from './ops/overload.ts'
import type { RoomDefinition } from './room/definition.ts'
import { developRooms, loadRooms, roomsHash } from './room/loader.ts'

/** Options of `startDataplane`. By default there are no traces, and the process is not a worker. */
interface DataplaneOptions
  extends Required<Pick<NodeOptions, 'store' | 'log'>>,
    Pick<NodeOptions, 'tracer' | 'sharing' | 'answer' | 'postNotice'> {
  readonly config: Omit<Defaults<'dataplane'>, 'workers'> &
    StoreConfig &
    Pick<Config<'dataplane'>, 'roomsDir'>
  /** True, for development: a room type is reloaded when its file changes, and players receive the text of errors in room code. */
  readonly development?: boolean
}

/** A running node with its watchdog. */
export interface RunningDataplane {
  readonly addresses: { readonly websocket: string; readonly admin: string }
  /** Metrics of the node. */
  readonly registry: Registry
  /** Returns the current room types. */
  rooms(): readonly RoomDefinition[]
  /** Handler for errors that no other code has handled. */
  readonly unhandled: UnhandledErrors
  /** An exception has interrupted roomful's own code: notes the last turn as the reason if it has just ended. */
  readonly failing: () => void
  /** Drains the node, hands its rooms over, and closes everything except the store; `drainMs` as in `RunningNode`. */
  close(drainMs?: number): Promise<void>
  /** Resolves when the node has shut down after `POST /admin/drain`. */
  readonly ended: Promise<void>
}

/** Starts one node with the room types of `ROOMS_DIR`. Resolves when it accepts clients. */
export async function startDataplane({
  config,
  store,
  log,
  tracer = noTracer,
  sharing,
  development = false,
  answer,
  postNotice,
}: DataplaneOptions): Promise<RunningDataplane> {
  const { roomsDir: folder } = config
  const developed = development ? await developRooms(folder, log) : undefined
  const rooms = developed?.rooms ?? (await loadRooms(folder, log))
  log.info(
    { folder, rooms_hash: roomsHash(rooms), room_types: rooms.map(({ type }) => type) },
    'room types loaded',
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
    ...(postNotice && { postNotice }),
    ...(maxConnections !== undefined && { maxConnections }),
    ...(sharing && { sharing }),
  }).catch(async (error: unknown) => {
    await watchdog.close()
    throw error
  })
  watchdog.watch(() => node.roomCode.where())
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
    failing: watchdog.lastWords,
    close: async (drainMs) => {
      developed?.close()
      await node.close(drainMs)
      await watchdog.close()
    },
  }
}

/** In development, a turn is cut off after this time, and its process continues. The watchdog logs its position before. */
const DEVELOPMENT_CUT_OFF_MS = 2000
const developmentLimit = () => (debuggerUrl() === undefined ? DEVELOPMENT_CUT_OFF_MS : undefined)
const DEVELOPMENT = { limitMs: 1200, cutOffMs: DEVELOPMENT_CUT_OFF_MS }

/** Maximum extension of the turn limit for a process without CPU time, as a factor, if the lease allows it. */
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
  nodeId: config.nodeId ?? '',
  // A session may resume and send the message again within this time.
  leaseMs: config.nodeLeaseMs,
})
