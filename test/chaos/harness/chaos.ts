import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { pino } from 'pino'
import { JournalFormat, UnreadableRecord } from '../../../dataplane/rooms/journal.ts'
import { restore } from '../../../dataplane/rooms/restore.ts'
import { redisStore } from '../../../shared/store/redis/redis.ts'
import { SeededRandom } from '../../kit/seeded-random.ts'
import { check } from '../checker/check.ts'
import type { ExcusedShare } from '../checker/excuses.ts'
import type { ClientRecord, Durability, End, Fault, History, Violation } from '../checker/history.ts'
import { machineNow, watchStalls } from '../node/clocks.ts'
import { type ChaosState, visibleTo } from '../room-logic.ts'
import { Cluster, KEY_PREFIX } from './cluster.ts'
import { Faults } from './faults.ts'
import { planFaults } from './plan.ts'
import type { Player } from './player.ts'
import { RawPlayer } from './raw-player.ts'
import { SdkPlayer } from './sdk-player.ts'

export interface ChaosOptions {
  readonly seed: number
  /** How long faults come. Everything around it takes up to two minutes more. */
  readonly seconds: number
  readonly nodes: number
  readonly clients: number
  readonly rooms: number
  /** Commits are not fenced: the run must fail. */
  readonly unfenced: boolean
  /** Nodes have addresses of their own, and two of three clients go to the node of their room. */
  readonly direct: boolean
  /** Where logs and histories go; it goes when everything held, unless they are to be kept. */
  readonly folder: string
  readonly keep: boolean
  readonly say: (line: string) => void
}

export interface ChaosResult {
  readonly history: History
  readonly violations: readonly Violation[]
  readonly excused: ExcusedShare
  /** Where logs and histories are; undefined when they were not kept. */
  readonly folder: string | undefined
}

const LEASE_MS = 1000
const DURABILITIES: readonly Durability[] = ['journal', 'snapshot', 'journal', 'none']
/** One client in so many uses the SDK; with direct routing one does, one is another that follows it, and one knows nothing of it. */
const SDK_ONE_IN = { spread: 6, direct: 3 }
const PROGRESS_MS = 5000
const JOINED_WITHIN_MS = 20_000
const SETTLED_WITHIN_MS = 25_000
const UNFENCED_WITHIN_MS = 4000
const EQUAL_WITHIN_MS = 10_000
/** A snapshot room is saved at least once a second. */
const SAVED_WITHIN_MS = 1500

/** One run: starts everything, breaks it as the seed says, heals it, and checks what everyone saw. */
export async function runChaos(options: ChaosOptions): Promise<ChaosResult> {
  const { nodes, unfenced, direct, folder } = options
  await mkdir(folder, { recursive: true })
  const cluster = await Cluster.start({ nodes, unfenced, direct, folder, lease_ms: LEASE_MS })
  const abandon = () => cluster.abandon()
  process.once('exit', abandon)
  try {
    const history = await new Run(options, cluster).history()
    const { violations, excused } = check(history)
    const keep = options.keep || violations.length > 0
    if (keep) await writeFile(join(folder, 'history.json'), JSON.stringify(history))
    if (!keep) await rm(folder, { recursive: true, force: true })
    return { history, violations, excused, folder: keep ? folder : undefined }
  } finally {
    process.off('exit', abandon)
    await cluster.close()
  }
}

class Run {
  readonly #options: ChaosOptions
  readonly #cluster: Cluster
  readonly #records: ClientRecord[] = []
  readonly #rooms: { readonly room: string; readonly key: string; readonly durability: Durability }[]
  /** Of this process, which all links go through. */
  readonly #stalls: Fault[] = []
  #players: Player[] = []

  constructor(options: ChaosOptions, cluster: Cluster) {
    this.#options = options
    this.#cluster = cluster
    this.#rooms = Array.from({ length: options.rooms }, (_, i) => {
      const durability = DURABILITIES[i % DURABILITIES.length]!
      return { room: `chaos-${durability}:r${i}`, key: `r${i}`, durability }
    })
  }

  async history(): Promise<History> {
    const { projectId, token } = await this.#cluster.login()
    this.#players = this.#invite(projectId, token)
    for (const player of this.#players) player.start()
    await this.#until('every client is in its room', JOINED_WITHIN_MS, () =>
      this.#players.every((player) => player.stand()),
    )
    const faults: Fault[] = []
    const began = machineNow()
    let ended = began
    const { seed, seconds, nodes, clients } = this.#options
    const plan = planFaults({ seed, seconds, nodes, clients, lease_ms: LEASE_MS })
    const trouble = new Faults(this.#cluster, this.#players, faults)
    const progress = this.#progress(faults)
    const unwatch = watchStalls((stall) => void this.#stalls.push({ kind: 'stall', ...stall }))
    let end: Omit<End, 'records' | 'unreadable'>
    try {
      trouble.start(plan)
      await pause(seconds * 1000)
      await trouble.healed()
      ended = machineNow()
      end = await this.#comeToRest()
    } finally {
      trouble.stop()
      clearInterval(progress)
      unwatch()
      for (const player of this.#players) player.close()
    }
    await this.#cluster.killNodes()
    const rooms = this.#rooms.map(({ room, durability }) => ({ room, durability }))
    const durable = rooms.filter(({ durability }) => durability !== 'none').map(({ room }) => room)
    const found = await audit(this.#cluster.redis.url, KEY_PREFIX, projectId, durable)
    const { stalls, ...told } = this.#cluster.history()
    return {
      run: { began, ended, clients, faults: plan.length, lease_ms: LEASE_MS },
      rooms,
      // What came after the end was taken is the end of the run itself.
      clients: this.#records.filter(({ at }) => at <= end.at),
      ...told,
      faults: [...faults, ...this.#stalls, ...stalls].sort((a, b) => a.at - b.at),
      end: { ...end, ...found },
    }
  }

  #invite(projectId: string, token: string): Player[] {
    const { direct } = this.#options
    const sdkOneIn = SDK_ONE_IN[direct ? 'direct' : 'spread']
    const draw = new SeededRandom(Math.imul(this.#options.seed + 7, 0x85ebca6b))
    return Array.from({ length: this.#options.clients }, (_, i) => {
      const name = `c${i}`
      // Every room has someone in it.
      const room = this.#rooms[i < this.#rooms.length ? i : Math.floor(draw.float() * this.#rooms.length)]!
      const random = new SeededRandom(Math.imul(this.#options.seed * 1000 + i + 1, 0xc2b2ae35))
      const parts = {
        name,
        room_type: `chaos-${room.durability}`,
        key: room.key,
        project_id: projectId,
        token,
        note: (note: object) =>
          void this.#records.push({ at: machineNow(), client: name, ...note } as ClientRecord),
        random: () => random.float(),
        doors: () => this.#cluster.doors(),
        reroutes: direct && i % sdkOneIn > 0,
      }
      return i % sdkOneIn === sdkOneIn - 1 ? new SdkPlayer(parts) : new RawPlayer(parts)
    })
  }

  /** Everyone stops, sends one last op, and waits; then nothing moves any more. */
  async #comeToRest(): Promise<Omit<End, 'records' | 'unreadable'>> {
    for (const player of this.#players) player.rest()
    await this.#settled()
    for (const player of this.#players) player.last()
    await this.#settled()
    const take = async () => ({
      at: machineNow(),
      owners: await this.#cluster.owners(),
      members: this.#players.flatMap((player) => player.stand() ?? []),
    })
    // A room may tell late who has no connection any more, and is saved a second behind that.
    const deadline = performance.now() + EQUAL_WITHIN_MS
    let before = await take()
    for (;;) {
      await pause(SAVED_WITHIN_MS)
      const end = await take()
      const rests = isDeepStrictEqual(end.owners, before.owners) && this.#isEqual(end)
      if (rests || performance.now() > deadline) return end
      before = end
    }
  }

  /** Resolves when everyone's ops are settled, or when that takes too long: the checker says what is missing. */
  async #settled(): Promise<void> {
    // Without the fence some may never be.
    const withinMs = this.#options.unfenced ? UNFENCED_WITHIN_MS : SETTLED_WITHIN_MS
    await this.#until('every op is settled', withinMs, () =>
      this.#players.every(({ settled }) => settled),
    ).catch((error: Error) => this.#options.say(error.message))
  }

  /** Whether every client is in its room, and has what the room's owner has. */
  #isEqual({ owners, members }: Omit<End, 'records' | 'unreadable'>): boolean {
    if (members.length < this.#players.length) return false
    return members.every(({ room, member, state }) =>
      owners.some(
        (owner) =>
          owner.room === room && isDeepStrictEqual(visibleTo(member, owner.state as ChaosState), state),
      ),
    )
  }

  #progress(faults: readonly Fault[]): NodeJS.Timeout {
    const begin = performance.now()
    return setInterval(() => {
      const acked = this.#records.filter(({ kind }) => kind === 'ack').length
      const online = this.#players.filter((player) => player.stand()).length
      const last = faults.at(-1)
      this.#options.say(
        `${Math.round((performance.now() - begin) / 1000)} s: ${acked} acks, ${this.#records.length} records, ${online}/${this.#players.length} in their rooms, ${faults.length} faults${last ? `, the last ${last.kind} of ${last.node ?? last.clients?.join(', ') ?? 'redis'}` : ''}`,
      )
    }, PROGRESS_MS)
  }

  async #until(what: string, withinMs: number, holds: () => boolean): Promise<void> {
    const deadline = performance.now() + withinMs
    while (!holds()) {
      if (performance.now() > deadline) {
        const missing = this.#players.filter((player) => !player.settled || !player.stand())
        throw new Error(
          `not within ${withinMs} ms: ${what}; ${missing.map((player) => player.describe()).join('; ')}`,
        )
      }
      await pause(50)
    }
  }
}

const RECORD_TTL_MS = 60_000

type Found = Pick<End, 'records' | 'unreadable'>

/** What the store holds of each room, as a new owner would find it. Every node must be gone. */
export async function audit(
  redisUrl: string,
  keyPrefix: string,
  projectId: string,
  rooms: readonly string[],
): Promise<Found> {
  const store = await redisStore({ url: redisUrl, keyPrefix, log: pino({ level: 'silent' }) })
  const format = new JournalFormat()
  const read = async (room: string): Promise<Found> => {
    const name = `${projectId}/${room}`
    const owner = await store.rooms.inspect(name)
    const claim = owner && (await store.rooms.claim(name, 'auditor', owner.epoch, RECORD_TTL_MS))
    if (!claim) return NOTHING
    try {
      const restored = restore(claim, format)
      if (!restored) return NOTHING
      const { seq, tree, told } = restored
      const timers = restored.timers.map(({ id }) => id)
      const [checksum, state] = [told?.checksum ?? tree.checksum, tree.flushed]
      return { records: [{ room, version: owner.version, seq, checksum, state, timers }], unreadable: [] }
    } catch (error) {
      if (!(error instanceof UnreadableRecord)) throw error
      return { records: [], unreadable: [{ room, message: error.message }] }
    }
  }
  try {
    const found = await Promise.all(rooms.map(read))
    return {
      records: found.flatMap(({ records }) => records),
      unreadable: found.flatMap(({ unreadable }) => unreadable),
    }
  } finally {
    await store.close()
  }
}

const NOTHING: Found = { records: [], unreadable: [] }
