import { type Room, RoomfulError } from '../../client/index.ts'
import { type BackendOptions, roomful, RoomfulError as ServerError } from '../../server/index.ts'
import { givenCredentials } from '../issuer.ts'
import type { CallsRoom } from '../rooms/calls.ts'
import { ramp } from './pace.ts'
import { SdkClients, type SdkClientsOptions } from './sdk-clients.ts'

/** Rooms that players open each second. */
const OPENED_PER_SECOND = 100

/** Rate and duration of a load. */
interface Pace {
  readonly perSecond: number
  readonly seconds: number
}

/** Result of a load. */
export interface Answers {
  readonly sent: number
  /** Milliseconds from sending to the answer, of each that was answered. */
  readonly times: readonly number[]
  /** Codes of those that failed. */
  readonly failed: readonly string[]
}

/** Answers that a room has given to one kind of requests. */
export interface Totals {
  readonly roomId: string
  /** `total` of each answer. */
  readonly answers: readonly number[]
  /** Number of requests that were not answered. Each may have been applied. */
  readonly unanswered: number
  /** Number of requests that the room's state counts. */
  readonly applied: number
}

type Kind = 'calls' | 'requests'

/** A room with the player who is in it. */
interface CalledRoom {
  /** Index of its project. */
  readonly project: number
  /** Number in its project. */
  readonly number: number
  readonly seat: Room<CallsRoom>
  readonly seen: Readonly<Record<Kind, { readonly answers: number[]; unanswered: number }>>
}

/** Backends of several projects that call rooms, and players in the same rooms, one in each, who send requests. */
export class CallClients {
  readonly #options: SdkClientsOptions
  readonly #players: SdkClients<{ 'load-calls': CallsRoom }>[] = []
  readonly #rooms: CalledRoom[] = []
  #projects: BackendOptions[] = []

  constructor(options: SdkClientsOptions) {
    this.#options = options
  }

  /** Makes projects, and opens `rooms` rooms of each by a player who stays in it. */
  async open({ projects: count, rooms }: { projects: number; rooms: number }): Promise<void> {
    const projects = Array.from({ length: count }, () => this.#options.issuer.issueProject())
    this.#projects = await this.#unlessInterrupted(Promise.all(projects))
    for (const [project, options] of this.#projects.entries()) {
      const token = await roomful(options).token()
      const issuer = givenCredentials({ projectId: options.projectId, token })
      const players = new SdkClients<{ 'load-calls': CallsRoom }>({ ...this.#options, issuer })
      this.#players.push(players)
      const clients = await players.connect(Array.from({ length: rooms }, () => undefined))
      await players.ramp([...clients.entries()], OPENED_PER_SECOND, async ([number, client]) => {
        const seat = await client.join('load-calls', { key: keyOf(number) })
        const seen = { calls: { answers: [], unanswered: 0 }, requests: { answers: [], unanswered: 0 } }
        this.#rooms.push({ project, number, seat, seen })
      })
    }
    // The projects take turns.
    this.#rooms.sort((one, other) => one.number - other.number)
  }

  /** Each room is called in turn. */
  call(pace: Pace): Promise<Answers> {
    return this.#call(pace, 'calls', this.#projects)
  }

  /** Sends the requests of `call` to another server, which does not know the rooms. */
  callAt(url: string, pace: Pace): Promise<Answers> {
    return this.#call(
      pace,
      undefined,
      this.#projects.map((project) => ({ ...project, url })),
    )
  }

  /** The player of each room in turn sends a request. */
  request(pace: Pace): Promise<Answers> {
    return this.#load(pace, 'requests', async ({ seat }) => (await seat.request('grant', { gold: 5 })).total)
  }

  /** Reads the state of each room. */
  async totals(): Promise<{ readonly [kind in Kind]: readonly Totals[] }> {
    const backends = this.#projects.map(roomful)
    const found: Record<Kind, Totals[]> = { calls: [], requests: [] }
    for (const { project, number, seat, seen } of this.#rooms) {
      const room = backends[project]!.room<CallsRoom>('load-calls', keyOf(number))
      const { state } = await this.#unlessInterrupted(room.state())
      for (const kind of ['calls', 'requests'] as const)
        found[kind].push({ roomId: seat.id, applied: state[kind], ...seen[kind] })
    }
    return found
  }

  close(): void {
    for (const players of this.#players) players.close()
  }

  #call(pace: Pace, kind: Kind | undefined, projects: readonly BackendOptions[]): Promise<Answers> {
    const backends = projects.map(roomful)
    return this.#load(pace, kind, async ({ project, number }) => {
      const room = backends[project]!.room<CallsRoom>('load-calls', keyOf(number))
      return (await room.call('grant', { gold: 5 })).total
    })
  }

  async #load(
    { perSecond, seconds }: Pace,
    kind: Kind | undefined,
    send: (room: CalledRoom) => Promise<number>,
  ): Promise<Answers> {
    const { clock } = this.#options
    const times: number[] = []
    const failed: string[] = []
    const numbers = Array.from({ length: perSecond * seconds }, (_, number) => number)
    const pace = { perSecond, offset: 0, ended: () => false }
    const sending = ramp(clock, numbers, pace, async (number) => {
      const room = this.#rooms[number % this.#rooms.length]!
      const seen = kind && room.seen[kind]
      const began = clock.monotonic()
      try {
        const total = await send(room)
        times.push(clock.monotonic() - began)
        seen?.answers.push(total)
      } catch (error) {
        if (!(error instanceof RoomfulError || error instanceof ServerError)) throw error
        if (seen) seen.unanswered += 1
        failed.push(error.code)
      }
    })
    await this.#unlessInterrupted(sending)
    return { sent: numbers.length, times, failed }
  }

  #unlessInterrupted<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#options.interrupted])
  }
}

const keyOf = (number: number): string => `room-${number}`
