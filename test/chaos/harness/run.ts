import { isDeepStrictEqual } from 'node:util'
import { JournalFormat, UnreadableRecord } from '../../../dataplane/rooms/journal.ts'
import { restore } from '../../../dataplane/rooms/restore.ts'
import { sleep } from '../../../shared/clock.ts'
import type { Store } from '../../../shared/store/port.ts'
import { SeededRandom } from '../../kit/seeded-random.ts'
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
import { type ChaosState, visibleTo } from '../room-logic.ts'
import { Backends } from './backends.ts'
import { LobbyPlayer } from './lobby-player.ts'
import { Faults, planFaults } from './plan.ts'
import type { Player } from './player.ts'
import { QueuePlayer } from './queue-player.ts'
import { RawPlayer } from './raw-player.ts'
import { SdkPlayer } from './sdk-player.ts'
import type { System } from './system.ts'

/** What is played, and broken. */
export interface RunOptions {
  readonly seed: number
  /** How long faults come. Everything around it takes up to two minutes more. */
  readonly seconds: number
  readonly nodes: number
  readonly clients: number
  readonly rooms: number
  /** Players who find rooms by lists, codes and reservations, besides the clients. */
  readonly lobby: number
  /** Backends that call rooms and get notices. */
  readonly backends: number
  /** Players who queue for matches, besides the clients. */
  readonly queue: number
  /** Commits are not fenced: the run must fail. */
  readonly unfenced: boolean
  /** Nodes have addresses of their own, and two of three clients go to the node of their room. */
  readonly direct: boolean
  readonly say: (line: string) => void
}

/** Of every node. */
export const LEASE_MS = 1000
const DURABILITIES: readonly Durability[] = ['journal', 'snapshot', 'journal', 'none']
/** One client in so many uses the SDK; with direct routing one does, one is another that follows it, and one knows nothing of it. */
const SDK_ONE_IN = { spread: 6, direct: 3 }
const JOINED_WITHIN_MS = 20_000
const SETTLED_WITHIN_MS = 25_000
/** The room of a killed node is delivered after 20 s, and then its backoff may be long. */
const ANSWERED_WITHIN_MS = 45_000
const UNFENCED_WITHIN_MS = 4000
/** A match whose room was lost is cancelled after 10 s. */
const EQUAL_WITHIN_MS = 20_000
const LOOK_MS = 50
/** A snapshot room is saved at least once a second. */
const SAVED_WITHIN_MS = 1500

type AtRest = Omit<End, 'records' | 'unreadable'> & {
  readonly lobby: Lobby['end']
  readonly backends: BackendHistory | undefined
  readonly queue: Queue['end']
}

/** One run on a system: clients play, it is broken as the seed says and heals, and all that everyone saw becomes a history. */
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
      this.#players.every((player) => player.stand()),
    )
    const { clock } = this.#system
    const began = clock.monotonic()
    let ended = began
    const { seed, seconds, nodes, clients } = this.#options
    const control = this.#backends !== undefined
    const plan = planFaults({ seed, seconds, nodes, clients, lease_ms: LEASE_MS, control })
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
    const { stalls, ...told } = this.#system.history()
    const { lobby, queue, backends, ...rest } = end
    const until = <T extends { readonly at: number }>(records: readonly T[]) =>
      records.filter(({ at }) => at <= end.at)
    return {
      run: { began, ended, clients, faults: plan.length, lease_ms: LEASE_MS },
      rooms,
      // What came after the end was taken is the end of the run itself.
      clients: until(this.#records),
      ...told,
      faults: [...this.#faults, ...stalls].sort((one, other) => one.at - other.at),
      ...(this.#lobby.length > 0 && { lobby: { records: until(this.#lobbyRecords), end: lobby } }),
      ...(this.#queue.length > 0 && { queue: { records: until(this.#queueRecords), end: queue } }),
      ...(backends && { backends }),
      end: { ...rest, ...found },
    }
  }

  /** How far it has got, for people. */
  get progress(): string {
    const acked = this.#records.filter(({ kind }) => kind === 'ack').length
    const online = this.#players.filter((player) => player.stand()).length
    const last = this.#faults.at(-1)
    return `${acked} acks, ${this.#records.length} records, ${online}/${this.#players.length} in their rooms, ${this.#faults.length} faults${last ? `, the last ${last.kind} of ${last.node ?? last.clients?.join(', ') ?? 'redis'}` : ''}`
  }

  #invite(projectId: string, token: string): Player[] {
    const { direct } = this.#options
    const { clock, dial } = this.#system
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
          void this.#records.push({ at: clock.monotonic(), client: name, ...note } as ClientRecord),
        random: () => random.float(),
        clock,
        dial,
        doors: () => this.#system.doors(),
        reroutes: direct && i % sdkOneIn > 0,
      }
      return i % sdkOneIn === sdkOneIn - 1 ? new SdkPlayer(parts) : new RawPlayer(parts)
    })
  }

  async #inviteToLobby(projectId: string): Promise<LobbyPlayer[]> {
    const { clock, dial } = this.#system
    const subs = Array.from({ length: this.#options.lobby }, (_, i) => `l${i}`)
    const board = { subs, codes: [], reservations: new Map() }
    return Promise.all(
      subs.map(async (name, i) => {
        const random = new SeededRandom(Math.imul(this.#options.seed * 1000 + i + 500, 0xc2b2ae35))
        return new LobbyPlayer({
          name,
          project_id: projectId,
          token: await this.#system.tokenOf(projectId, name),
          note: (note) =>
            void this.#lobbyRecords.push({ at: clock.monotonic(), client: name, ...note } as LobbyRecord),
          doors: () => this.#system.doors(),
          random: () => random.float(),
          clock,
          dial,
          board,
        })
      }),
    )
  }

  async #prepareBackends(projectId: string): Promise<Backends | undefined> {
    const { backends: count, seed } = this.#options
    const { control } = this.#system
    if (count === 0) return undefined
    if (!control) throw new Error('there is no control that backends could call')
    return Backends.prepare({ count, seed, project_id: projectId, system: this.#system, control })
  }

  async #inviteToQueue(projectId: string): Promise<QueuePlayer[]> {
    const { clock, dial } = this.#system
    const board = { parties: 0, invitation: undefined, match: undefined }
    return Promise.all(
      Array.from({ length: this.#options.queue }, async (_, i) => {
        const name = `q${i}`
        const random = new SeededRandom(Math.imul(this.#options.seed * 1000 + i + 700, 0xc2b2ae35))
        return new QueuePlayer({
          name,
          project_id: projectId,
          token: await this.#system.tokenOf(projectId, name),
          note: (note) =>
            void this.#queueRecords.push({ at: clock.monotonic(), client: name, ...note } as QueueRecord),
          doors: () => this.#system.doors(),
          random: () => random.float(),
          clock,
          dial,
          board,
        })
      }),
    )
  }

  get #all() {
    return [...this.#players, ...this.#lobby, ...this.#queue]
  }

  /** Everyone stops, sends one last op, and waits; then nothing moves any more. */
  async #comeToRest(): Promise<AtRest> {
    const { clock } = this.#system
    for (const player of this.#all) player.rest()
    this.#backends?.rest()
    await this.#settled()
    if (this.#backends && !(await this.#backends.settled(ANSWERED_WITHIN_MS)))
      this.#options.say(
        `not within ${ANSWERED_WITHIN_MS} ms: every call is answered and every notice has arrived`,
      )
    for (const player of this.#players) player.last()
    await this.#settled()
    const take = async () => {
      const all = await this.#system.owners()
      const at = clock.monotonic()
      const ofType = (type: string) => all.filter(({ room }) => room.startsWith(`${type}:`))
      const banks = ['chaos-bank-journal', 'chaos-bank-snapshot'].flatMap(ofType)
      const others = [...['chaos-lobby', 'chaos-queue', 'chaos-match'].flatMap(ofType), ...banks]
      return {
        at,
        owners: all.filter((owner) => !others.includes(owner)),
        members: this.#players.flatMap((player) => player.stand() ?? []),
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
    // A room may tell late who has no connection any more, and is saved a second behind that.
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

  /** Resolves when everyone's ops are settled, or when that takes too long: the checker says what is missing. */
  async #settled(): Promise<void> {
    // Without the fence some may never be.
    const withinMs = this.#options.unfenced ? UNFENCED_WITHIN_MS : SETTLED_WITHIN_MS
    await this.#until('every op is settled', withinMs, () =>
      this.#players.every(({ settled }) => settled),
    ).catch((error: Error) => this.#options.say(error.message))
  }

  /** Whether every client is in its room, and has what the room's owner has. */
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
        const missing = this.#players.filter((player) => !player.settled || !player.stand())
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

/** What the store holds of each room, as a new owner would find it; closes it. Every node must be gone. */
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
      const { seq, tree, shown } = restored
      const timers = restored.tables.timers.rows.map(({ id }) => id)
      const reservations = restored.tables.reservations.rows.map(({ id }) => id)
      const [checksum, state] = [shown?.checksum ?? tree.checksum, tree.flushed]
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
