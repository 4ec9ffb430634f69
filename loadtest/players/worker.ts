import { once } from 'node:events'
import { type EventLoopUtilization, monitorEventLoopDelay, performance } from 'node:perf_hooks'
import { MessageChannel, type MessagePort, parentPort, Worker, workerData } from 'node:worker_threads'
import { type Clock, sleep, systemClock } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import type { Credentials } from '../issuer.ts'
import { type ClientContext, type ClientSettings, LoadClient, type Newest, newestOf } from './client.ts'
import { Pacer, ramp } from './pace.ts'
import { type Tallied, Tally } from './tally.ts'

/** Position of a thread among the threads of a run. */
interface WorkerPlace {
  readonly index: number
  readonly of: number
}

/** Results of the clients of a thread since the last report. */
export interface WorkerReport extends Tallied {
  readonly online: number
}

/** Longest wait of a player for the effect of its message, or of a spectator for the next update. */
export interface Pause {
  /** Number of the client. */
  readonly number: number
  readonly kind: LoadClient['kind']
  readonly ms: number
}

/** The event loop of a thread since the last reading. */
interface LoopReading {
  /** 99th percentile of the delay of timers. */
  readonly delayMs: number
  /** Fraction of the time in which the loop was busy, 0 to 1. */
  readonly utilisation: number
}

const RESOLUTION_MS = 5

/** Returns a function that reads the event loop of this thread since its last call. */
export function watchLoop(): () => LoopReading {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
  delay.enable()
  let last: EventLoopUtilization = performance.eventLoopUtilization()
  return () => {
    const now = performance.eventLoopUtilization()
    const { utilization: utilisation } = performance.eventLoopUtilization(now, last)
    last = now
    const delayMs = Math.max(0, delay.percentile(99) / 1e6 - RESOLUTION_MS)
    delay.reset()
    return { delayMs, utilisation }
  }
}

/** Clients that connect. */
interface Arrivals {
  readonly count: number
  readonly perSecond: number
}

/** Returns every n-th entry, so that a fraction (0 to 1) of the list is selected, evenly spread. */
const shareOf = <T>(all: readonly T[], share: number): T[] =>
  all.filter((_, index) => Math.floor((index + 1) * share) > Math.floor(index * share))

const roomKey = (room: string, number: number, rooms: number): string => `${room}-${number % rooms}`

/**
 * The clients of one thread. The clients of a run are spread over its threads evenly, and numbered from 0. Arguments and results are
 * plain data, because another thread calls the methods. Numbers of clients and rates are those of all threads together.
 */
export class LoadWorker {
  readonly #context: ClientContext
  readonly #place: WorkerPlace
  readonly #pacer: Pacer
  readonly #readLoop = watchLoop()
  readonly #players: LoadClient[] = []
  /** Spectators, and members who do as little. */
  readonly #spectators: LoadClient[] = []
  #credentials: Credentials | undefined
  /** Total number of clients of all threads. */
  #numbers = 0
  /** Number of moves of each client. */
  readonly #moves = new Map<LoadClient, number>()
  #closed = false

  constructor(settings: ClientSettings, place: WorkerPlace, clock: Clock, random: Random) {
    this.#place = place
    this.#context = { settings, tally: new Tally(), clock, random }
    this.#pacer = new Pacer(clock)
  }

  /** Clients that come later connect with these. Called first. */
  async use(credentials: Credentials): Promise<void> {
    this.#credentials = credentials
  }

  /** Connects `count` more players, `perSecond` of them each second. Resolves when all are connected or have failed. */
  connect({ count, perSecond }: Arrivals): Promise<void> {
    return this.#ramp(this.#add('player', count), perSecond, (client, due) => client.connect(due))
  }

  /** Connects spectators, who watch the room `room`. They check sequence numbers, but keep no state and send nothing. */
  watch(options: Arrivals & { room: string }): Promise<void> {
    return this.#attend('spectator', options, () => options.room)
  }

  /** Connects members who do as little as spectators. Member i joins the room `<room>-<i mod rooms>`. */
  idle(options: Arrivals & { room: string; rooms: number }): Promise<void> {
    const { room, rooms } = options
    return this.#attend('idler', options, (number) => roomKey(room, number, rooms))
  }

  /** Player i joins the room `<room>-<i mod rooms>`, unless it is in a room. Resolves when all have joined or failed. */
  join(options: { rooms: number; perSecond: number; room?: string }): Promise<void> {
    const { rooms, perSecond, room = 'load' } = options
    const outside = this.#players.filter((player) => player.alive && !player.inRoom)
    return this.#ramp(outside, perSecond, (player, due) =>
      player.join(roomKey(room, player.number, rooms), due),
    )
  }

  /** Each player sends `rate` messages per second, evenly spread, until `stop`. Each carries `bytes` of text for all members. */
  async start(options: { rate: number; bytes?: number; reliable?: boolean }): Promise<void> {
    const { rate, bytes = 0, reliable = true } = options
    let sent = 0
    const text = (): string => (bytes === 0 ? '' : String(++sent).padStart(bytes, 'load '))
    const send = (player: LoadClient, due: number): void => {
      if (reliable) void player.send(due, text())
      else player.sendUnreliable()
    }
    const count = (): number => this.#players.length
    this.#pacer.start(rate, this.#offset, count, (index, due) => send(this.#players[index]!, due))
  }

  async stop(): Promise<void> {
    this.#pacer.stop()
  }

  /**
   * Each player, or player number `of`, sends a message when the one before is acked, for `seconds` or until it has sent `messages`.
   */
  async loop(options: { seconds?: number; messages?: number; of?: number }): Promise<void> {
    const { seconds = Number.POSITIVE_INFINITY, messages = Number.POSITIVE_INFINITY, of } = options
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

  /** Players leave their room and join the next one, `perSecond` of them each second, for `seconds`. */
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

  /** Cuts the sockets of this fraction (0 to 1) of all clients. Resolves when all of them have reconnected or failed. */
  async cut({ share }: { share: number }): Promise<void> {
    const chosen = shareOf(this.#clients, share).filter(({ online }) => online)
    await Promise.all(chosen.map((client) => client.cut()))
  }

  /**
   * Lets this fraction of the clients stop reading and sending for `seconds`. Resolves with the number that the service closed (4103),
   * which is not a failure.
   */
  async stall({ share, seconds }: { share: number; seconds: number }): Promise<number> {
    const chosen = shareOf(this.#clients, share).filter(({ online }) => online)
    for (const client of chosen) client.stall()
    await this.#until(seconds, () => false)
    const read = await Promise.all(chosen.map((client) => client.readOn()))
    return read.filter((all) => !all).length
  }

  /** Starts the measurement of `takePauses`. */
  async markPauses(): Promise<void> {
    for (const client of this.#clients) client.markPause()
  }

  /** Resolves with the longest pause of each client since `markPauses`. Times those of players as `pause`. */
  async takePauses(): Promise<Pause[]> {
    return this.#clients.map((client) => ({
      number: client.number,
      kind: client.kind,
      ms: client.takePause(),
    }))
  }

  /** Waits at most `withinSeconds` for all answers, and checks that the rooms have applied each message once. */
  async awaitAnswers({ withinSeconds }: { withinSeconds: number }): Promise<void> {
    const deadline = this.#context.clock.monotonic() + withinSeconds * 1000
    await Promise.all(this.#clients.map((client) => client.awaitAnswers(deadline)))
    for (const client of this.#clients) client.judge()
  }

  /** Returns the highest `seq` of each room that the clients of this thread have seen. */
  async newest(): Promise<Newest> {
    return newestOf(this.#clients.map(({ position }) => position))
  }

  /** Waits at most `withinSeconds` until every connected spectator has seen as much as `newest`, and reports those that have not. */
  async catchUp(newest: Newest, withinSeconds: number): Promise<void> {
    await this.#until(withinSeconds, () => !this.#spectators.some((spectator) => spectator.isBehind(newest)))
    for (const spectator of this.#spectators) spectator.judgePosition(newest)
  }

  /** Counts messages without an answer as failures. */
  async giveUp(): Promise<void> {
    for (const client of this.#clients) client.giveUp()
  }

  /** Waits until every client of the revoked key is closed. Resolves with these times (`Date.now()`). */
  async awaitRevoked({ withinSeconds }: { withinSeconds: number }): Promise<number[]> {
    const underRevokedKey = this.#clients.filter((client) => client.underRevokedKey)
    await this.#until(withinSeconds, () => underRevokedKey.every((client) => !client.alive))
    return underRevokedKey.flatMap(({ revokedAt }) => revokedAt ?? [])
  }

  async report(): Promise<WorkerReport> {
    const { tally, clock } = this.#context
    const now = clock.monotonic()
    for (const client of this.#clients) client.review(now)
    const online = this.#clients.filter((client) => client.online).length
    return { ...tally.take(), online }
  }

  async loopReading(): Promise<LoopReading> {
    return this.#readLoop()
  }

  /** Breaks all connections permanently. Sessions and memberships last for as long as the service keeps them. */
  async abandon(): Promise<void> {
    for (const client of this.#clients) client.abandon()
    await this.leave()
  }

  /** Closes all clients. Others may connect later. */
  async leave(): Promise<void> {
    for (const client of this.#clients) client.close()
    this.#players.length = 0
    this.#spectators.length = 0
  }

  /** Closes all clients, and ends everything that is still running. */
  async close(): Promise<void> {
    this.#closed = true
    this.#pacer.stop()
    await this.leave()
  }

  get #clients(): readonly LoadClient[] {
    return [...this.#players, ...this.#spectators]
  }

  /** Delay of this thread's ramps and paces, as a part of the distance between two items. */
  get #offset(): number {
    return this.#place.index / this.#place.of
  }

  /** Connects clients, and lets each join the room with the key of its number. */
  #attend(
    kind: LoadClient['kind'],
    { count, perSecond }: Arrivals,
    keyOf: (number: number) => string,
  ): Promise<void> {
    return this.#ramp(this.#add(kind, count), perSecond, async (client, due) => {
      await client.connect(due)
      await client.join(keyOf(client.number), this.#context.clock.monotonic())
    })
  }

  /** Returns this thread's part of `count` new clients. */
  #add(kind: LoadClient['kind'], count: number): LoadClient[] {
    const { index, of } = this.#place
    const first = this.#numbers
    this.#numbers += count
    const added = Array.from(
      { length: Math.ceil((count - index) / of) },
      (_, turn) => new LoadClient(first + turn * of + index, kind, this.#credentials!, this.#context),
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

  /** Resolves when `reached` returns true, or after `withinSeconds`. */
  async #until(withinSeconds: number, reached: () => boolean): Promise<void> {
    const { clock } = this.#context
    const end = clock.monotonic() + withinSeconds * 1000
    while (!reached() && !this.#closed && clock.monotonic() < end) await sleep(clock, 10)
  }
}

/** A call of a method, and the port that receives its answer. */
interface WorkerCall {
  readonly name: keyof LoadWorker
  readonly args: readonly unknown[]
  readonly port: MessagePort
}
type WorkerAnswer = { readonly value: unknown } | { readonly error: string }

interface WorkerSettings extends ClientSettings {
  readonly place: WorkerPlace
}

/** Answers the calls of the main thread. */
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

/** Number of clients for which one more thread is worth its cost. */
const CLIENTS_PER_THREAD = 250

/** The methods of LoadWorker. Each runs in every thread, and resolves with the results of all. */
export type Everywhere = {
  readonly [K in keyof LoadWorker]: (
    ...args: Parameters<LoadWorker[K]>
  ) => Promise<Awaited<ReturnType<LoadWorker[K]>>[]>
}

/** The threads that hold the clients of a run. */
export class Threads {
  /** Works also when the run is interrupted. */
  readonly all: Everywhere
  /** Rejects when the run is interrupted. */
  readonly interruptible: Everywhere
  readonly #threads: Thread[] = []

  /** `interrupted` rejects when the run is interrupted. */
  constructor(interrupted: Promise<never>) {
    const everywhere = (wrap: (work: Promise<unknown>) => Promise<unknown>): Everywhere =>
      new Proxy({} as Everywhere, {
        get:
          (_, name) =>
          (...args: readonly unknown[]) =>
            wrap(Promise.all(this.#threads.map((thread) => thread.call(name as keyof LoadWorker, args)))),
      })
    this.all = everywhere((work) => work)
    this.interruptible = everywhere((work) => Promise.race([work, interrupted]))
  }

  /** Starts at most `most` threads for so many clients. Resolves when they answer, so that the first clients are not late. */
  async open(clients: number, most: number, settings: ClientSettings): Promise<void> {
    const of = Math.min(most, Math.max(1, Math.ceil(clients / CLIENTS_PER_THREAD)))
    for (let index = 0; index < of; index++)
      this.#threads.push(new Thread({ ...settings, place: { index, of } }))
    await this.all.stop()
  }

  async end(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.end()))
  }
}

const CODE = new URL('./worker.mjs', import.meta.url)

/** A LoadWorker in a thread. */
class Thread {
  readonly #worker: Worker
  /** Rejects when the thread has ended, or with its error. */
  readonly #ended: Promise<never>

  constructor(settings: WorkerSettings) {
    this.#worker = new Worker(CODE, { execArgv: [], workerData: settings })
    this.#ended = once(this.#worker, 'exit').then(() => {
      throw new Error('a thread of the load test has ended')
    })
    this.#ended.catch(() => undefined)
  }

  async call(name: keyof LoadWorker, args: readonly unknown[]): Promise<unknown> {
    const { port1, port2 } = new MessageChannel()
    try {
      this.#worker.postMessage({ name, args, port: port2 } satisfies WorkerCall, [port2])
      const [answer] = (await Promise.race([once(port1, 'message'), this.#ended])) as [WorkerAnswer]
      if ('error' in answer) throw new Error(answer.error)
      return answer.value
    } finally {
      port1.close()
    }
  }

  async end(): Promise<void> {
    await this.#worker.terminate()
  }
}
