import type { Clock } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import type { ClientParts, Credentials, CrowdSettings } from './client-parts.ts'
import { Book, type BreachKind, type Findings } from './findings.ts'
import { type Closing, Lookout } from './lookout.ts'
import { type LoopReading, LoopWatch } from './loop-watch.ts'
import { Rhythm, ramp } from './pace.ts'
import { Player } from './player.ts'
import { behind, type Newest, newestOf } from './seen.ts'
import { Spectator } from './spectator.ts'
import { type Tallied, Tally } from './tally.ts'

/** So many things to begin each second; `offset`, 0–1: where between those of the other threads. */
export interface Pace {
  readonly per_second: number
  readonly offset: number
}

/** What a squad was, and did, since it was asked last. */
export interface SquadReport extends Tallied {
  readonly online: number
  /** Up to now, since the start. */
  readonly breaches: Readonly<Record<BreachKind, number>>
}

/** The room of client `number` when there are so many. */
const roomKey = (number: number, rooms: number): string => `load-${number % rooms}`

/** Every n-th of a list, so that a share (0–1) of it is taken, evenly spread. */
const shareOf = <T>(all: readonly T[], share: number): T[] =>
  all.filter((_, index) => Math.floor((index + 1) * share) > Math.floor(index * share))

const updatesOf = (clients: readonly (Player | Spectator)[]): number =>
  clients.reduce((sum, { updates }) => sum + updates, 0)

/** The clients of one thread. Every method takes and gives plain data, so that it can be called from another thread. */
export class Squad {
  readonly #parts: ClientParts
  readonly #rhythm: Rhythm
  readonly #loop = new LoopWatch()
  readonly #players: Player[] = []
  readonly #spectators: Spectator[] = []
  /** How often each client has moved on. */
  readonly #moves = new Map<Player, number>()
  #acks = 0
  #over = false

  constructor(settings: CrowdSettings, clock: Clock, random: Random) {
    const lookout = new Lookout(clock)
    this.#parts = { settings, tally: new Tally(), book: new Book(), clock, random, lookout }
    this.#rhythm = new Rhythm(clock)
  }

  connect(numbers: readonly number[], pace: Pace, credentials: Credentials): Promise<void> {
    return this.#ramp(numbers, pace, (number, due) => {
      const player = new Player(number, credentials, this.#parts)
      this.#players.push(player)
      return player.connect(due)
    })
  }

  watch(numbers: readonly number[], pace: Pace, credentials: Credentials, key: string): Promise<void> {
    return this.#ramp(numbers, pace, (number, due) => {
      const spectator = new Spectator(number, key, credentials, this.#parts)
      this.#spectators.push(spectator)
      return spectator.watch(due)
    })
  }

  /** Those who are in no room join theirs. */
  join(rooms: number, pace: Pace): Promise<void> {
    const outside = this.#players.filter((player) => player.alive && !player.in_room)
    return this.#ramp(outside, pace, (player, due) => player.join(roomKey(player.number, rooms), due))
  }

  async start(rate: number, offset: number, bytes: number): Promise<void> {
    let said = 0
    const text = (): string => (bytes === 0 ? '' : String(++said).padStart(bytes, 'load '))
    this.#rhythm.start(
      rate,
      offset,
      () => this.#players.length,
      (speaker, due) => this.#players[speaker]!.say(due, text()),
    )
  }

  async stop(): Promise<void> {
    this.#rhythm.stop()
  }

  churn(rooms: number, seconds: number, pace: Pace): Promise<void> {
    const players = this.#players.filter((player) => player.in_room)
    const moves = Math.floor(pace.per_second * seconds)
    const items =
      players.length === 0 ? [] : Array.from({ length: moves }, (_, n) => players[n % players.length]!)
    return this.#ramp(items, pace, (player, due) => {
      const moved = (this.#moves.get(player) ?? 0) + 1
      this.#moves.set(player, moved)
      return player.move(roomKey(player.number + moved, rooms), due)
    })
  }

  async cut(share: number): Promise<void> {
    const chosen = shareOf(this.#all, share).filter(({ online }) => online)
    await Promise.all(chosen.map((client) => client.cut()))
  }

  /** Resolves with how many of them the service closed for it. */
  async stall(share: number, seconds: number): Promise<number> {
    const chosen = shareOf(this.#all, share).filter(({ online }) => online)
    const end = this.#parts.clock.monotonic() + seconds * 1000
    for (const client of chosen) client.stall()
    await this.#until(() => this.#parts.clock.monotonic() >= end)
    await Promise.all(chosen.map((client) => client.readOn()))
    return chosen.filter((client) => client instanceof Player && client.dropped).length
  }

  async markPauses(): Promise<void> {
    for (const player of this.#players) player.markPause()
  }

  async takePauses(): Promise<void> {
    for (const player of this.#players) player.takePause()
  }

  async settle(within_seconds: number): Promise<void> {
    const deadline = this.#parts.clock.monotonic() + within_seconds * 1000
    await Promise.all(this.#players.map((player) => player.settle(deadline)))
    for (const player of this.#players) player.judge()
  }

  /** How far anybody here has seen each room. */
  async newest(): Promise<Newest> {
    return newestOf(this.#all.flatMap(({ seen }) => seen ?? []))
  }

  /** Resolves when every spectator that is connected has seen as much, or after so long; who has not by then misses something. */
  async catchUp(newest: Newest, within_seconds: number): Promise<void> {
    const { clock } = this.#parts
    const end = clock.monotonic() + within_seconds * 1000
    const late = (): boolean =>
      this.#spectators.some(({ seen }) => seen !== undefined && behind(seen, newest) > 0)
    await this.#until(() => !late() || clock.monotonic() >= end)
    for (const spectator of this.#spectators) spectator.judge(newest)
  }

  /** Nothing is waited for any more. */
  async giveUp(): Promise<void> {
    for (const client of this.#all) client.giveUp()
  }

  /** Resolves when every client that came under a key to be revoked is closed, with when that was. */
  async awaitRevoked(within_seconds: number): Promise<Closing[]> {
    const { clock } = this.#parts
    const end = clock.monotonic() + within_seconds * 1000
    const doomed = this.#players.filter((player) => player.doomed)
    await this.#until(() => doomed.every((player) => !player.alive) || clock.monotonic() >= end)
    return doomed.flatMap(({ closing }) => closing ?? [])
  }

  /** What there was since the last call. */
  async report(): Promise<SquadReport> {
    const { tally, book, clock } = this.#parts
    const now = clock.monotonic()
    for (const player of this.#players) player.review(now)
    const tallied = tally.take()
    this.#acks += tallied.counts.acks
    const breaches = Object.fromEntries(
      Object.entries(book.breaches).map(([kind, { count }]) => [kind, count]),
    ) as SquadReport['breaches']
    const online = this.#all.filter((client) => client.online).length
    return { ...tallied, online, breaches }
  }

  /** How busy this thread was since the last call; of a very short time that would say little. */
  async strain(): Promise<LoopReading> {
    return this.#loop.take()
  }

  /** What was found, and looked at until the last report. */
  async findings(): Promise<Findings> {
    return {
      updates: updatesOf(this.#all),
      player_updates: updatesOf(this.#players),
      acks: this.#acks,
      player_events: this.#players.reduce((sum, { events }) => sum + events, 0),
      counted_members: this.#players.filter((player) => player.counted).length,
      breaches: this.#parts.book.breaches,
    }
  }

  /** Everybody says goodbye, and whatever still goes on ends. */
  async close(): Promise<void> {
    this.#over = true
    this.#rhythm.stop()
    for (const client of this.#all) client.close()
    this.#loop.close()
    this.#parts.lookout.close()
  }

  get #all(): readonly (Player | Spectator)[] {
    return [...this.#players, ...this.#spectators]
  }

  #ramp<T>(items: readonly T[], pace: Pace, work: (item: T, due: number) => Promise<void>): Promise<void> {
    return ramp(this.#parts.clock, items, { ...pace, ended: () => this.#over }, work)
  }

  async #until(reached: () => boolean): Promise<void> {
    while (!reached() && !this.#over)
      await new Promise<void>((resolve) => this.#parts.clock.schedule(10, resolve))
  }
}
