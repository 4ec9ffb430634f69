import { isDeepStrictEqual } from 'node:util'
import { JournalFormat, UnreadableRecord } from '../../../dataplane/room/journal.ts'
import { restore } from '../../../dataplane/room/restore.ts'
import { sleep } from '../../../shared/clock.ts'
import type { Store } from '../../../shared/store/port.ts'
import { SeededRandom } from '../../kit/seeded-random.ts'
import { Backends } from '../../players/backend.ts'
import type { Player } from '../../players/player.ts'
import { LobbyPlayer, QueuePlayer } from '../../players/queue-and-lobby.ts'
import { RawPlayer } from '../../players/raw.ts'
import { SdkPlayer } from '../../players/sdk.ts'
import type {
  BackendHistory,
  ClientRecord,
  Durability,
  End,
  Fault,
  History,
  Lobby,
  LobbyRecord,
  Queue,
  QueueRecord,
} from '../checker/history.ts'
import { checkLobbyEnd } from '../checker/lobby-rules.ts'
import { checkQueueEnd } from '../checker/queue-rules.ts'
import { type ChaosState, visibleTo } from '../rooms.ts'
import { Faults, planFaults } from './plan.ts'
import type { System } from './system.ts'

/** Size and faults of a run. */
export interface RunOptions {
  readonly seed: number
  /** Time in which faults start. Start and end of the run take up to two minutes more. */
  readonly seconds: number
  readonly nodes: number
  readonly clients: number
  readonly rooms: number
  /** Number of additional players who find rooms by lists, codes and reservations. */
  readonly lobby: number
  /** Number of backends that call rooms and receive notices. */
  readonly backends: number
  /** Number of additional players who queue for matches. */
  readonly queue: number
  /** The store does not fence. Some seeds must then fail. */
  readonly unfenced: boolean
  /** Nodes have separate addresses, and two of three clients move to the node of their room. */
  readonly direct: boolean
  readonly say: (line: string) => void
}

/** Lease of each node. */
export const LEASE_MS = 1000
const DURABILITIES: readonly Durability[] = ['journal', 'snapshot', 'journal', 'none']
/**
 * One of this many clients uses the SDK. With direct routing, one of three clients uses the SDK, one follows a `move` without the SDK, and one
 * ignores each `move`.
 */
const SDK_ONE_IN = { spread: 6, direct: 3 }
const JOINED_WITHIN_MS = 20_000
const ANSWERED_WITHIN_MS = 25_000
/** The notices of a killed node's room are delivered after 20 s, and then after a backoff. */
const BACKENDS_WITHIN_MS = 45_000
const UNFENCED_WITHIN_MS = 4000
/**
 * A queue cancels a match whose room is lost after 20 s, and keeps its tickets apart for 30 s. A party may be incomplete for 60 s, and a player
 * with three refusals waits for 60 s.
 */
const EQUAL_WITHIN_MS = 150_000
const LOOK_MS = 50
/** A room with durability `snapshot` is saved at least once a second. */
const SAVED_WITHIN_MS = 1500

type AtRest = Omit<End, 'records' | 'unreadable'> & {
  readonly lobby: Lobby['end']
  readonly backends: BackendHistory | undefined
  readonly queue: Queue['end']
}

/** One run on a system: clients play while the faults of the seed happen. The result is a history for the checker. */
export class Run {
  readonly #options: RunOptions
  readonly #system: System
  readonly #records: ClientRecord[] = []
  readonly #rooms: { readonly room: string; readonly key: string; readonly durability: Durability }[]
  /** Faults that have begun. */
  readonly #faults: Fault[] = []
  #players: Player[] = []
  #lobby: LobbyPlayer[] = []
  readonly #lobbyRecords: LobbyRecord[] = []
  #backends: Backends | undefined
  #queue: QueuePlayer[] = []
  readonly #queueRecords: QueueRecord[] = []

  constructor(options: RunOptions, system: System) {
    this.#options = options
    this.#system = system
    this.#rooms = Array.from({ length: options.rooms }, (_, i) => {
      const durability = DURABILITIES[i % DURABILITIES.length]!
      return { room: `chaos-${durability}:r${i}`, key: `r${i}`, durability }
    })
  }

  async history(): Promise<History> {
    const { projectId, token } = await this.#system.login()
    this.#players = this.#invite(projectId, token)
    this.#lobby = await this.#inviteToLobby(projectId)
    this.#queue = await this.#inviteToQueue(projectId)
    this.#backends = await this.#prepareBackends(projectId)
    for (const player of this.#all) player.start()
    this.#backends?.start()
    await this.#until('every client is in its room', JOINED_WITHIN_MS, () =>
      this.#players.every((player) => player.position()),
    )
    const { clock } = this.#system
    const began = clock.monotonic()
    let ended = began
    const { seed, seconds, nodes, clients } = this.#options
    const control = this.#backends !== undefined
    const plan = planFaults({ seed, seconds, nodes, clients, leaseMs: LEASE_MS, control })
    const trouble = new Faults(this.#system, this.#players, this.#faults)
    let end: AtRest
    try {
      trouble.start(plan)
      await sleep(clock, seconds * 1000)
      await trouble.healed()
      ended = clock.monotonic()
      end = await this.#comeToRest()
    } finally {
      trouble.stop()
      for (const player of this.#all) player.close()
      this.#backends?.close()
    }
    await this.#system.killNodes()
    const rooms = this.#rooms.map(({ room, durability }) => ({ room, durability }))
    const durable = rooms.filter(({ durability }) => durability !== 'none').map(({ room }) => room)
    const found = await audit(await this.#system.openStore(), projectId, durable)
    const { stalls, ...ofNodes } = this.#system.history()
    const { lobby, queue, backends, ...rest } = end
    const until = <T extends { readonly at: number }>(records: readonly T[]) =>
      records.filter(({ at }) => at <= end.at)
    return {
      run: { began, ended, clients, faults: plan.length, lease_ms: LEASE_MS },
      rooms,
      // Later records are effects of the shutdown.
      clients: until(this.#records),
      ...ofNodes,
      faults: [...this.#faults, ...stalls].sort((one, other) => one.at - other.at),
      ...(this.#lobby.length > 0 && { lobby: { records: until(this.#lobbyRecords), end: lobby } }),
      ...(this.#queue.length > 0 && { queue: { records: until(this.#queueRecords), end: queue } }),
      ...(backends && { backends }),
      end: { ...rest, ...found },
    }
  }

  /** Progress of the run as text. */
  get progress(): string {
    const acked = this.#records.filter(({ kind }) => kind === 'ack').length
    const online = this.#players.filter((player) => player.position()).length
    const last = this.#faults.at(-1)
    return `${acked} acks, ${this.#records.length} records, ${online}/${this.#players.length} in their rooms, ${this.#faults.length} faults${last ? `, the last ${last.kind} of ${last.node ?? last.clients?.join(', ') ?? 'redis'}` : ''}`
  }

  /** Dependencies of a client, whose records go to `records`. `number` selects its random numbers, and differs for each client. */
  #partsOf<R>(name: string, number: number, projectId: string, token: string, records: R[]) {
    const { clock, dial } = this.#system
    const random = new SeededRandom(Math.imul(this.#options.seed * 1000 + number, 0xc2b2ae35))
    return {
      name,
      projectId,
      token,
      note: (note: object) => void records.push({ at: clock.monotonic(), client: name, ...note } as R),
      doors: () => this.#system.doors(),
      random: () => random.float(),
      clock,
      dial,
    }
  }

  #invite(projectId: string, token: string): Player[] {
    const { direct } = this.#options
    const sdkOneIn = SDK_ONE_IN[direct ? 'direct' : 'spread']
    const draw = new SeededRandom(Math.imul(this.#options.seed + 7, 0x85ebca6b))
    return Array.from({ length: this.#options.clients }, (_, i) => {
      // The first clients join one room each, so that no room is empty.
      const room = this.#rooms[i < this.#rooms.length ? i : Math.floor(draw.float() * this.#rooms.length)]!
      const parts = {
        ...this.#partsOf(`c${i}`, i + 1, projectId, token, this.#records),
        roomType: `chaos-${room.durability}`,
        key: room.key,
        reroutes: direct && i % sdkOneIn > 0,
        // The first client of each room makes it.
        watches: i >= this.#rooms.length && i % 4 === 0,
      }
      return i % sdkOneIn === sdkOneIn - 1 ? new SdkPlayer(parts) : new RawPlayer(parts)
    })
  }

  async #inviteToLobby(projectId: string): Promise<LobbyPlayer[]> {
    const subs = Array.from({ length: this.#options.lobby }, (_, i) => `l${i}`)
    const board = { subs, codes: [], reservations: new Map() }
    return Promise.all(
      subs.map(async (name, i) => {
        const token = await this.#system.tokenOf(projectId, name)
        return new LobbyPlayer({
          ...this.#partsOf(name, i + 500, projectId, token, this.#lobbyRecords),
          board,
        })
      }),
    )
  }

  async #prepareBackends(projectId: string): Promise<Backends | undefined> {
    const { backends: count, seed } = this.#options
    const { control } = this.#system
    if (count === 0) return undefined
    if (!control) throw new Error(`backends is ${count}: use 0, because this system has no control plane`)
    return Backends.prepare({ count, seed, projectId, system: this.#system, control })
  }

  async #inviteToQueue(projectId: string): Promise<QueuePlayer[]> {
    const board = { parties: 0, invitation: undefined, match: undefined }
    return Promise.all(
      Array.from({ length: this.#options.queue }, async (_, i) => {
        const name = `q${i}`
        const token = await this.#system.tokenOf(projectId, name)
        return new QueuePlayer({
          ...this.#partsOf(name, i + 700, projectId, token, this.#queueRecords),
          board,
        })
      }),
    )
  }

  get #all() {
    return [...this.#players, ...this.#lobby, ...this.#queue]
  }

  /** Stops all clients after one last op, and waits until all copies of the rooms are equal and no longer change. */
  async #comeToRest(): Promise<AtRest> {
    const { clock } = this.#system
    for (const player of this.#all) player.rest()
    this.#backends?.rest()
    await this.#allAnswered()
    if (this.#backends && !(await this.#backends.finished(BACKENDS_WITHIN_MS)))
      this.#options.say(
        `not within ${BACKENDS_WITHIN_MS} ms: every call is answered and every notice has arrived`,
      )
    for (const player of this.#players) player.last()
    await this.#allAnswered()
    const take = async () => {
      const all = await this.#system.owners()
      const at = clock.monotonic()
      const ofType = (type: string) => all.filter(({ room }) => room.startsWith(`${type}:`))
      const banks = ['chaos-bank-journal', 'chaos-bank-snapshot'].flatMap(ofType)
      const others = [...['chaos-lobby', 'chaos-queue', 'chaos-match'].flatMap(ofType), ...banks]
      return {
        at,
        owners: all.filter((owner) => !others.includes(owner)),
        members: this.#players.flatMap((player) => player.position() ?? []),
        lobby: {
          at,
          rooms: ofType('chaos-lobby'),
          lists: this.#lobby.map(({ name: client, rows }) => ({ client, rows })),
          roomless: this.#lobby.filter(({ hasRoom }) => !hasRoom).map(({ name }) => name),
        },
        queue: {
          at,
          queues: ofType('chaos-queue'),
          waiting: this.#queue.flatMap(({ waiting }) => waiting ?? []),
          outside: this.#queue.filter(({ rests }) => !rests).map(({ name }) => name),
        },
        backends: this.#backends?.history(at, banks),
      }
    }
    // A room may learn late that a member's connection is lost, and is saved up to a second later.
    const deadline = clock.monotonic() + EQUAL_WITHIN_MS
    let before = await take()
    for (;;) {
      await sleep(clock, SAVED_WITHIN_MS)
      const end = await take()
      const rests =
        isDeepStrictEqual(end.owners, before.owners) &&
        this.#isEqual(end) &&
        isDeepStrictEqual({ ...end.lobby, at: 0 }, { ...before.lobby, at: 0 }) &&
        isDeepStrictEqual(end.backends?.end.rooms, before.backends?.end.rooms) &&
        checkLobbyEnd(end.lobby).length === 0 &&
        checkQueueEnd(end.queue).length === 0
      if (rests || clock.monotonic() > deadline) return end
      before = end
    }
  }

  /** Resolves when all ops have their answers, or after a timeout. The checker reports what is missing. */
  async #allAnswered(): Promise<void> {
    // Without the fence, some ops may never get an answer.
    const withinMs = this.#options.unfenced ? UNFENCED_WITHIN_MS : ANSWERED_WITHIN_MS
    await this.#until('every op is answered', withinMs, () =>
      this.#players.every(({ answered }) => answered),
    ).catch((error: Error) => this.#options.say(error.message))
  }

  /** True if all clients are in their rooms, and have the state that the owner has. */
  #isEqual({ owners, members }: AtRest): boolean {
    if (members.length < this.#players.length) return false
    return members.every(({ room, member, state }) =>
      owners.some(
        (owner) =>
          owner.room === room && isDeepStrictEqual(visibleTo(member, owner.state as ChaosState), state),
      ),
    )
  }

  async #until(what: string, withinMs: number, holds: () => boolean): Promise<void> {
    const { clock } = this.#system
    const deadline = clock.monotonic() + withinMs
    while (!holds()) {
      if (clock.monotonic() > deadline) {
        const missing = this.#players.filter((player) => !player.answered || !player.position())
        throw new Error(
          `not within ${withinMs} ms: ${what}; ${missing.map((player) => player.describe()).join('; ')}`,
        )
      }
      await sleep(clock, LOOK_MS)
    }
  }
}

const RECORD_TTL_MS = 60_000

type Found = Pick<End, 'records' | 'unreadable'>

/** Claims each room as a new owner would, and returns its restored record. Closes the store. All nodes must have ended before. */
async function audit(store: Store, projectId: string, rooms: readonly string[]): Promise<Found> {
  const format = new JournalFormat()
  const read = async (room: string): Promise<Found> => {
    const name = `${projectId}/${room}`
    const owner = await store.rooms.inspect(name)
    const claim = owner && (await store.rooms.claim(name, 'auditor', owner.epoch, RECORD_TTL_MS))
    if (!claim) return NOTHING
    try {
      const restored = restore(claim, format)
      if (!restored) return NOTHING
      const { seq, shown } = restored
      const live = restored.state(Number.POSITIVE_INFINITY, undefined)
      const timers = restored.tables.timers.rows.map(({ id }) => id)
      const reservations = restored.tables.reservations.rows.map(({ id }) => id)
      const [checksum, state] = [shown?.checksum ?? live.checksum, live.base]
      const record = { room, version: owner.version, seq, checksum, state, timers, reservations }
      return { records: [record], unreadable: [] }
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
