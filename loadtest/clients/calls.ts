import { type Client, connect, type Room, RoomfulError } from '../../client/index.ts'
import { roomful, RoomfulError as ServerError } from '../../server/index.ts'
import type { Clock } from '../../shared/clock.ts'
import type { Issuer } from '../issuer.ts'
import type { CallsRoom } from '../rooms/calls.ts'
import { ramp } from './pace.ts'
import { MeteredSocket } from './socket.ts'

interface CallClientsOptions {
  readonly wsUrls: readonly string[]
  readonly issuer: Pick<Issuer, 'issueProject'>
  readonly clock: Clock
  /** Rejects when the run is interrupted. */
  readonly interrupted: Promise<never>
}

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
  readonly key: string
  readonly project: number
  readonly seat: Room<CallsRoom>
  readonly seen: Readonly<Record<Kind, { readonly answers: number[]; unanswered: number }>>
}

type CallClient = Client<{ 'load-calls': CallsRoom }>

/** Backends of several projects that call rooms, and players in the same rooms, one in each, who send requests. */
export class CallClients {
  readonly #options: CallClientsOptions
  readonly #clients: CallClient[] = []
  readonly #rooms: CalledRoom[] = []
  #projects: Awaited<ReturnType<Issuer['issueProject']>>[] = []

  constructor(options: CallClientsOptions) {
    this.#options = options
  }

  /** Makes projects, and opens `rooms` rooms of each by a player who stays in it. */
  async open(options: { projects: number; rooms: number; perSecond: number }): Promise<void> {
    const { wsUrls, issuer, clock } = this.#options
    const projects = Array.from({ length: options.projects }, () => issuer.issueProject())
    this.#projects = await this.#unlessInterrupted(Promise.all(projects))
    const tokens = await Promise.all(this.#projects.map((project) => roomful(project).token()))
    const nothing = () => undefined
    const numbers = Array.from({ length: options.projects * options.rooms }, (_, number) => number)
    const errors: unknown[] = []
    const enter = async (number: number): Promise<void> => {
      const project = number % options.projects
      const { projectId } = this.#projects[project]!
      const { WebSocket } = new MeteredSocket(wsUrls, Math.floor(number / options.projects))
      const token = tokens[project]!
      const settings = { projectId, token, WebSocket, clock, reroute: false, onError: nothing }
      const client: CallClient = await connect(wsUrls[0]!, settings)
      this.#clients.push(client)
      const key = `room-${number}`
      const seat = await client.join('load-calls', { key })
      const seen = {
        calls: { answers: [], unanswered: 0 },
        requests: { answers: [], unanswered: 0 },
      }
      this.#rooms.push({ key, project, seat, seen })
    }
    await this.#each(numbers, options.perSecond, (number) =>
      enter(number).catch((error: unknown) => void errors.push(error)),
    )
    if (errors.length > 0) throw errors[0]
  }

  /** Each room is called in turn. */
  call(pace: Pace): Promise<Answers> {
    const backends = this.#projects.map(roomful)
    return this.#load(pace, 'calls', async ({ project, key }) => {
      const { total } = await backends[project]!.room<CallsRoom>('load-calls', key).call('grant', { gold: 5 })
      return total
    })
  }

  /** Sends the requests of `call` to another server, which does not know the rooms. */
  callAt(url: string, pace: Pace): Promise<Answers> {
    const backends = this.#projects.map((project) => roomful({ ...project, url }))
    return this.#load(pace, undefined, async ({ project, key }) => {
      const { total } = await backends[project]!.room<CallsRoom>('load-calls', key).call('grant', { gold: 5 })
      return total
    })
  }

  /** The player of each room in turn sends a request. */
  request(pace: Pace): Promise<Answers> {
    return this.#load(pace, 'requests', async ({ seat }) => (await seat.request('grant', { gold: 5 })).total)
  }

  /** Reads the state of each room. */
  async totals(): Promise<{ readonly [kind in Kind]: readonly Totals[] }> {
    const backends = this.#projects.map(roomful)
    const found: Record<Kind, Totals[]> = { calls: [], requests: [] }
    for (const { project, key, seat, seen } of this.#rooms) {
      const room = backends[project]!.room<CallsRoom>('load-calls', key)
      const { state } = await this.#unlessInterrupted(room.state())
      for (const kind of ['calls', 'requests'] as const)
        found[kind].push({ roomId: seat.id, applied: state[kind], ...seen[kind] })
    }
    return found
  }

  close(): void {
    for (const client of this.#clients) client.close()
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
    await this.#each(numbers, perSecond, async (number) => {
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
    return { sent: numbers.length, times, failed }
  }

  #each<T>(items: readonly T[], perSecond: number, work: (item: T) => Promise<void>): Promise<void> {
    const pace = { perSecond, offset: 0, ended: () => false }
    return this.#unlessInterrupted(ramp(this.#options.clock, items, pace, work))
  }

  #unlessInterrupted<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#options.interrupted])
  }
}
