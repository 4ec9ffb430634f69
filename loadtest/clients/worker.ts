import { type MessagePort, parentPort, workerData } from 'node:worker_threads'
import { type Clock, sleep, systemClock } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { type Findings, FindingsLog } from '../checks.ts'
import {
  type ClientContext,
  type ClientSettings,
  type Closing,
  type Credentials,
  LoadClient,
} from './client.ts'
import { LoopMeter, type LoopReading, PollWatch } from './loop.ts'
import { behind, type Newest, newestOf } from './member.ts'
import { Pacer, ramp } from './pace.ts'
import { type Tallied, Tally } from './tally.ts'

/** Which of the threads of a run this is. */
export interface WorkerPlace {
  readonly index: number
  readonly of: number
}

/** What the clients of a thread were, and did, since it was asked last; its findings are of the time since the start. */
export interface WorkerReport extends Tallied {
  readonly online: number
  readonly findings: Findings
}

/** The longest wait of a player for an effect of its own. */
export interface Pause {
  /** Of the client. */
  readonly number: number
  readonly ms: number
}

/** Every n-th of a list, so that a share (0–1) of it is taken, evenly spread. */
const shareOf = <T>(all: readonly T[], share: number): T[] =>
  all.filter((_, index) => Math.floor((index + 1) * share) > Math.floor(index * share))

const roomKey = (room: string, number: number, rooms: number): string => `${room}-${number % rooms}`

/**
 * The clients of one thread: its part of all that a run has, which are spread over the threads evenly. Every method takes and gives plain
 * data, so that it can be called from another thread. Rates are those of all threads together.
 */
export class LoadWorker {
  readonly #context: ClientContext
  readonly #place: WorkerPlace
  readonly #pacer: Pacer
  readonly #loop = new LoopMeter()
  readonly #players: LoadClient[] = []
  readonly #spectators: LoadClient[] = []
  /** How many clients all threads have had. */
  #numbers = 0
  /** How often each client has moved on. */
  readonly #moves = new Map<LoadClient, number>()
  #closed = false

  constructor(settings: ClientSettings, place: WorkerPlace, clock: Clock, random: Random) {
    this.#place = place
    const polls = new PollWatch(clock)
    this.#context = { settings, tally: new Tally(), findings: new FindingsLog(), clock, random, polls }
    this.#pacer = new Pacer(clock)
  }

  /** Connects `count` more players. */
  connect(count: number, perSecond: number, credentials: Credentials): Promise<void> {
    return this.#ramp(this.#add('player', count, credentials), perSecond, (client, due) =>
      client.connect(due),
    )
  }

  /** Connects `count` spectators, who join the room `key` right away, or are spread over `rooms` of them. */
  watch(
    count: number,
    perSecond: number,
    credentials: Credentials,
    key: string,
    rooms?: number,
  ): Promise<void> {
    return this.#ramp(this.#add('spectator', count, credentials), perSecond, async (client, due) => {
      await client.connect(due)
      const now = this.#context.clock.monotonic()
      await client.join(rooms === undefined ? key : roomKey(key, client.number, rooms), now)
    })
  }

  /** Players who are in no room join theirs. */
  join({
    rooms,
    perSecond,
    room = 'load',
  }: {
    rooms: number
    perSecond: number
    room?: string
  }): Promise<void> {
    const outside = this.#players.filter((player) => player.alive && !player.inRoom)
    return this.#ramp(outside, perSecond, (player, due) =>
      player.join(roomKey(room, player.number, rooms), due),
    )
  }

  async start({
    rate,
    bytes = 0,
    reliable = true,
  }: {
    rate: number
    bytes?: number
    reliable?: boolean
  }): Promise<void> {
    let sent = 0
    const text = (): string => (bytes === 0 ? '' : String(++sent).padStart(bytes, 'load '))
    const send = (player: LoadClient, due: number): void => {
      if (reliable) void player.send(due, text())
      else player.sendUnreliable()
    }
    this.#pacer.start(
      rate,
      this.#offset,
      () => this.#players.length,
      (index, due) => send(this.#players[index]!, due),
    )
  }

  async stop(): Promise<void> {
    this.#pacer.stop()
  }

  async loop({
    seconds = Number.POSITIVE_INFINITY,
    messages = Number.POSITIVE_INFINITY,
    of,
  }: {
    seconds?: number
    messages?: number
    of?: number
  }): Promise<void> {
    const { clock } = this.#context
    const end = clock.monotonic() + seconds * 1000
    const players = this.#players.filter(({ number }) => of === undefined || number === of)
    await Promise.all(
      players.map(async (player) => {
        for (let sent = 0; sent < messages && clock.monotonic() < end && player.online; sent++)
          await player.send(clock.monotonic(), '')
      }),
    )
  }

  churn({ rooms, seconds, perSecond }: { rooms: number; seconds: number; perSecond: number }): Promise<void> {
    const players = this.#players.filter((player) => player.inRoom)
    const moves = players.length === 0 ? 0 : Math.floor((perSecond / this.#place.of) * seconds)
    const items = Array.from({ length: moves }, (_, n) => players[n % players.length]!)
    return this.#ramp(items, perSecond, (player, due) => {
      const moved = (this.#moves.get(player) ?? 0) + 1
      this.#moves.set(player, moved)
      return player.move(roomKey('load', player.number + moved, rooms), due)
    })
  }

  async cut({ share }: { share: number }): Promise<void> {
    const chosen = shareOf(this.#clients, share).filter(({ online }) => online)
    await Promise.all(chosen.map((client) => client.cut()))
  }

  /** Resolves with how many of them the service closed for it. */
  async stall({ share, seconds }: { share: number; seconds: number }): Promise<number> {
    const chosen = shareOf(this.#clients, share).filter(({ online }) => online)
    for (const client of chosen) client.stall()
    await this.#until(seconds, () => false)
    const read = await Promise.all(chosen.map((client) => client.readOn()))
    return read.filter((all) => !all).length
  }

  async markPauses(): Promise<void> {
    for (const player of this.#players) player.markPause()
  }

  async takePauses(): Promise<Pause[]> {
    return this.#players.map((player) => ({ number: player.number, ms: player.takePause() }))
  }

  async settle({ withinSeconds }: { withinSeconds: number }): Promise<void> {
    const deadline = this.#context.clock.monotonic() + withinSeconds * 1000
    await Promise.all(this.#clients.map((client) => client.settle(deadline)))
    for (const client of this.#clients) client.judge()
  }

  /** How far any client here has seen each room. */
  async newest(): Promise<Newest> {
    return newestOf(this.#clients.flatMap(({ position }) => position ?? []))
  }

  /** Resolves when every spectator that is connected has seen as much, or after so long; one that has not by then misses something. */
  async catchUp(newest: Newest, withinSeconds: number): Promise<void> {
    const spectators = this.#spectators
    await this.#until(withinSeconds, () =>
      spectators.every(({ position }) => position === undefined || behind(position, newest) === 0),
    )
    for (const spectator of spectators) spectator.judgePosition(newest)
  }

  /** Nothing is waited for any more. */
  async giveUp(): Promise<void> {
    for (const client of this.#clients) client.giveUp()
  }

  /** Resolves when every client that came under a key to be revoked is closed, with when that was. */
  async awaitRevoked({ withinSeconds }: { withinSeconds: number }): Promise<Closing[]> {
    const underRevokedKey = this.#clients.filter((client) => client.underRevokedKey)
    await this.#until(withinSeconds, () => underRevokedKey.every((client) => !client.alive))
    return underRevokedKey.flatMap(({ closing }) => closing ?? [])
  }

  /** What there was since the last call. */
  async report(): Promise<WorkerReport> {
    const { tally, findings, clock } = this.#context
    const now = clock.monotonic()
    for (const client of this.#clients) client.review(now)
    const online = this.#clients.filter((client) => client.online).length
    return { ...tally.take(), online, findings: findings.all }
  }

  /** How busy this thread was since the last call; of a very short time that would say little. */
  async loopReading(): Promise<LoopReading> {
    return this.#loop.take()
  }

  /** All connections break, and no client comes back: sessions and memberships stay for as long as the service keeps them. */
  async abandon(): Promise<void> {
    for (const client of this.#clients) client.abandon()
    await this.leave()
  }

  /** All clients say goodbye; others may come. */
  async leave(): Promise<void> {
    for (const client of this.#clients) client.close()
    this.#players.length = 0
    this.#spectators.length = 0
  }

  /** The same, and everything that still goes on ends. */
  async close(): Promise<void> {
    this.#closed = true
    this.#pacer.stop()
    await this.leave()
    this.#loop.close()
    this.#context.polls.close()
  }

  get #clients(): readonly LoadClient[] {
    return [...this.#players, ...this.#spectators]
  }

  /** So much of its own pace this thread begins after the first. */
  get #offset(): number {
    return this.#place.index / this.#place.of
  }

  /** This thread's part of so many new clients of all threads. */
  #add(kind: LoadClient['kind'], count: number, credentials: Credentials): LoadClient[] {
    const { index, of } = this.#place
    const first = this.#numbers
    this.#numbers += count
    const added = Array.from(
      { length: Math.ceil((count - index) / of) },
      (_, turn) => new LoadClient(first + turn * of + index, kind, credentials, this.#context),
    )
    const all = kind === 'player' ? this.#players : this.#spectators
    all.push(...added)
    return added
  }

  #ramp<T>(
    items: readonly T[],
    perSecond: number,
    work: (item: T, due: number) => Promise<void>,
  ): Promise<void> {
    const pace = { perSecond: perSecond / this.#place.of, offset: this.#offset, ended: () => this.#closed }
    return ramp(this.#context.clock, items, pace, work)
  }

  /** Resolves when it is reached, or after so long. */
  async #until(withinSeconds: number, reached: () => boolean): Promise<void> {
    const { clock } = this.#context
    const end = clock.monotonic() + withinSeconds * 1000
    while (!reached() && !this.#closed && clock.monotonic() < end) await sleep(clock, 10)
  }
}

/** The methods that can be called from another thread. */
export type WorkerMethod = {
  [K in keyof LoadWorker]: LoadWorker[K] extends (...args: never[]) => Promise<unknown> ? K : never
}[keyof LoadWorker]

/** One call, and the port that takes its answer. */
export interface WorkerCall {
  readonly name: WorkerMethod
  readonly args: readonly unknown[]
  readonly port: MessagePort
}
export type WorkerAnswer = { readonly value: unknown } | { readonly error: string }

/** What a thread is started with. */
export interface WorkerSettings extends ClientSettings {
  readonly place: WorkerPlace
}

/** Makes this thread one that does what it is told, and answers when that is done. */
export function serve(): void {
  if (!parentPort) throw new Error('this module runs in a worker thread only')
  const { place, ...settings } = workerData as WorkerSettings
  const worker = new LoadWorker(settings, place, systemClock, new SeededRandom(settings.seed + place.index))
  parentPort.on('message', ({ name, args, port }: WorkerCall) => {
    const method = worker[name] as (...args: readonly unknown[]) => Promise<unknown>
    const answer = (given: WorkerAnswer): void => port.postMessage(given)
    method.apply(worker, [...args]).then(
      (value) => answer({ value }),
      (error: unknown) => answer({ error: String(error) }),
    )
  })
}
