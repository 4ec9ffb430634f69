import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import type { Credentials } from '../../loadtest/issuer.ts'
import type { Scenario } from './scenarios.ts'
import { type Listening, mapOf } from './servers/served.ts'

/** The load generator. It does not decode updates: clients that measure round trips search for the bytes of one number. */

/** Number of clients that connect at the same time. More with direct nodes, where a client mostly waits for its `move`. */
const CONNECTING = { known: 128, rerouted: 500 }
/** One of this many clients measures round trips. It is not the first of its room, whose node has the room. */
const SAMPLED = 20
/** A round trip that is open at the end of a window, for longer than this, counts with its time so far. */
const OVERDUE_MS = 200
/** Range of x in the moves of measured clients. In all encodings these integers differ from most coordinates. */
const MARKS = [256, 999] as const

/** Address of a node, with the credentials of all clients. */
export interface Endpoint extends Listening {
  /** For roomful: a token for each client. */
  readonly credentials: readonly Credentials[]
  /** For roomful: clients move to the node of their room. */
  readonly direct: boolean
}

/** Wire format of one server. */
export interface Dialect {
  /** Returns the endpoint of a room's node, if a client knows it. */
  endpoint?(endpoints: readonly Endpoint[], room: number): Endpoint | undefined
  /** Connects client number `client` and joins a room, to play or to watch. Resolves when it has the room's state. */
  join(endpoint: Endpoint, client: number, room: string, watch?: boolean): Promise<Joined>
  /** Watches the list of rooms of a map. Absent: the server has no lists. */
  watch?(endpoint: Endpoint, client: number, map: string): Promise<Joined>
  /** Prepares a client. The returned function finds a room of a map with a free seat, and joins it. */
  finder?(endpoint: Endpoint, client: number, map: string): Promise<() => Promise<Joined>>
  /** Encodes a move to `x`, by default to a random place. With `ref` the server acknowledges it. */
  move(room: string, x?: number, ref?: number): Uint8Array | string
  /** Encodes an input that changes nothing. */
  nudge(room: string): Uint8Array | string
  /** Returns the bytes of an x from 256 to 999 in an update. */
  mark(x: number): Buffer
  isUpdate(bytes: Buffer): boolean
  /** Message that ends the session of a client. Absent: the end of its connection does. */
  readonly goodbye?: Uint8Array
  /** Answers a ping of the protocol. */
  answer?(socket: WebSocket, bytes: Buffer): void
  /** Returns the state of a client that has received these messages. */
  state(messages: readonly Buffer[]): unknown
}

/** A client that has the state of its room. */
export interface Joined {
  readonly socket: WebSocket
  readonly messages: Buffer[]
  /** Port of its node, if the client has moved to another node. */
  readonly port?: number
  /**
   * Reads the position from `messages`, which has all that the client has received. The returned function connects again, and resolves when
   * the server has answered the resume. Absent: the server has no resumes.
   */
  prepareResume?(): () => Promise<Joined>
}

/** Returns a websocket that is not open yet. Attach listeners before you await anything, because messages may arrive with the upgrade. */
export const dial = (port: number, path: string, subprotocol?: string): WebSocket =>
  new WebSocket(`ws://127.0.0.1:${port}${path}`, subprotocol, {
    perMessageDeflate: false,
    skipUTF8Validation: true,
  })

/** A client in a room. */
interface Client {
  readonly socket: WebSocket
  readonly room: number
  /** Its number in the room. */
  readonly seat: number
  /** Index of its endpoint. */
  readonly endpoint: number
  readonly recorded: Buffer[] | undefined
  readonly prepareResume: Joined['prepareResume']
  updates: number
  sent: number
  /** State of a round trip: the last x, and the time at which it was sent. Undefined time: the x has come back. */
  sample: { x: number; bytes: Buffer; since: number | undefined } | undefined
}

type Sending = Pick<Scenario, 'inputs' | 'nudges' | 'reliable'>
const anyOf = <T>(all: readonly T[]): T => all[Math.floor(Math.random() * all.length)]!

/** Calls `work` with each item, with at most `concurrency` calls at the same time. Returns the results in the order of the items. */
export async function each<T, R>(
  items: readonly T[],
  concurrency: number,
  work: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = []
  const waiting = items.entries()
  const next = async (): Promise<void> => {
    for (const [index, item] of waiting) results[index] = await work(item)
  }
  await Promise.all(Array.from({ length: concurrency }, next))
  return results
}

/** The clients of one server. */
export class Clients {
  /** Close reasons of connections that the server ended. */
  readonly lost: string[] = []
  readonly #dialect: Dialect
  readonly #endpoints: readonly Endpoint[]
  /** Begins the names of their rooms. */
  readonly #prefix: string
  readonly #clients: Client[] = []
  /** Watchers, and clients that have found a room. */
  readonly #extra: Joined[] = []
  #bytes = 0
  #inputs = 0
  #roundTrips: number[] = []

  constructor(dialect: Dialect, endpoints: readonly Endpoint[], prefix = 'r') {
    this.#dialect = dialect
    this.#endpoints = endpoints
    this.#prefix = prefix
  }

  /**
   * Connects `count` more clients, in new rooms of `perRoom`. The first `recorded` clients keep all messages. The first clients of the rooms use the
   * endpoints in turn, so that each node opens as many rooms. All others use a random one. Resolves when all have joined.
   */
  async join(count: number, perRoom: number, recorded = 0): Promise<void> {
    const start = this.#clients.length
    const numbers = Array.from({ length: count }, (_, i) => start + i)
    const isFirst = (number: number): boolean => number % perRoom === 0
    const direct = this.#endpoints.some((endpoint) => endpoint.direct)
    const concurrency = CONNECTING[direct ? 'rerouted' : 'known']
    for (const first of [true, false]) {
      const some = numbers.filter((number) => isFirst(number) === first)
      await each(some, concurrency, (number) => this.#join(number, perRoom, number - start < recorded))
    }
    // The members of a room send at different times, so that every flush has a change.
    this.#clients.sort((a, b) => a.seat - b.seat || a.room - b.room)
  }

  async #join(number: number, perRoom: number, recorded: boolean): Promise<void> {
    const [room, seat] = [Math.floor(number / perRoom), number % perRoom]
    const all = this.#endpoints
    const any = seat === 0 ? all[room % all.length]! : anyOf(all)
    const first = this.#dialect.endpoint?.(all, room) ?? any
    const joined = await this.#dialect.join(first, number, `${this.#prefix}${room}`)
    const { socket, messages, port = first.port } = joined
    const client: Client = {
      socket,
      room,
      seat,
      endpoint: all.findIndex((other) => other.port === port),
      recorded: recorded ? messages : undefined,
      prepareResume: joined.prepareResume,
      updates: 0,
      sent: 0,
      sample:
        number % SAMPLED === SAMPLED - 1
          ? { x: MARKS[0], bytes: this.#dialect.mark(MARKS[0]), since: undefined }
          : undefined,
    }
    socket.removeAllListeners('message').on('message', (bytes: Buffer) => this.#received(client, bytes))
    socket.on('close', (code, reason) => this.lost.push(`closed with ${code} ${reason}`))
    this.#clients.push(client)
  }

  #received(client: Client, bytes: Buffer): void {
    this.#bytes += bytes.length
    client.recorded?.push(bytes)
    if (!this.#dialect.isUpdate(bytes)) {
      this.#dialect.answer?.(client.socket, bytes)
      return
    }
    client.updates += 1
    const { sample } = client
    if (sample?.since === undefined || !bytes.includes(sample.bytes)) return
    this.#roundTrips.push(performance.now() - sample.since)
    sample.since = undefined
  }

  /** Lets `count` clients connect, and join `rooms` existing rooms in turn. */
  async arrive(count: number, rooms: number, watch: boolean): Promise<void> {
    const join = (number: number) =>
      this.#dialect.join(anyOf(this.#endpoints), number, `${this.#prefix}${number % rooms}`, watch)
    this.#extra.push(...(await each(this.#others(count), CONNECTING.known, join)))
  }

  /** Prepares the resumes of all clients. The returned function cuts and resumes them. It returns the seconds until all are back. */
  prepareResumes(): () => Promise<number> {
    const resumes = this.#clients.map(({ prepareResume }) => prepareResume!())
    return async () => {
      const start = performance.now()
      for (const { socket } of this.#clients) socket.removeAllListeners('close').terminate()
      this.#extra.push(...(await Promise.all(resumes.map((resume) => resume()))))
      return (performance.now() - start) / 1_000
    }
  }

  /** Starts `count` clients that watch lists. */
  async watch(count: number): Promise<void> {
    const numbers = this.#others(count)
    const [endpoint] = this.#endpoints
    const watch = this.#dialect.watch!
    this.#extra.push(...(await Promise.all(numbers.map((n) => watch(endpoint!, n, mapOf(n))))))
  }

  /** Prepares `count` clients. The returned function lets each find and join a room, `concurrency` of them at the same time. */
  async finders(count: number, concurrency: number): Promise<() => Promise<void>> {
    const [endpoint] = this.#endpoints
    const finder = this.#dialect.finder!
    const ready = await each(this.#others(count), concurrency, (n) => finder(endpoint!, n, mapOf(n)))
    return async () => void this.#extra.push(...(await each(ready, concurrency, (find) => find())))
  }

  /** Returns unused numbers for clients. */
  #others(count: number): number[] {
    const first = this.#clients.length + this.#extra.length
    return Array.from({ length: count }, (_, i) => first + i)
  }

  /** Plays for `seconds`. Each client sends at its rate by absolute deadlines. Returns the totals of all clients. */
  async play(seconds: number, sending: Sending) {
    const start = performance.now()
    const before = this.#clients.map(({ updates }) => updates)
    this.#bytes = this.#inputs = 0
    this.#roundTrips = []
    const total = sending.inputs * this.#clients.length
    for (let now = start; now < start + seconds * 1_000; now = performance.now()) {
      const due = Math.floor(((now - start) * total) / 1_000)
      for (; this.#inputs < due; this.#inputs++)
        this.#input(this.#clients[this.#inputs % this.#clients.length]!, sending)
      await sleep(1)
    }
    const updates = this.#clients.map((client, i) => client.updates - before[i]!)
    const end = performance.now()
    const open = this.#clients.flatMap(({ sample }) =>
      sample?.since === undefined ? [] : end - sample.since,
    )
    return {
      updates: updates.reduce((sum, each) => sum + each, 0),
      /** Updates of the client that received fewest. */
      fewest: Math.min(...updates),
      /** Payload of all messages. */
      bytes: this.#bytes,
      inputs: this.#inputs,
      /** Times from an input to the update that shows it, milliseconds. */
      roundTrips: [...this.#roundTrips, ...open.filter((waited) => waited > OVERDUE_MS)],
    }
  }

  #input(client: Client, { nudges, reliable }: Sending): void {
    client.sent += 1
    const { socket, sample } = client
    const [room, ref] = [`r${client.room}`, reliable ? client.sent : undefined]
    if (sample && !nudges && sample.since === undefined) {
      sample.x = sample.x < MARKS[1] ? sample.x + 1 : MARKS[0]
      sample.bytes = this.#dialect.mark(sample.x)
      sample.since = performance.now()
    }
    socket.send(nudges ? this.#dialect.nudge(room) : this.#dialect.move(room, sample?.x, ref))
  }

  /** Returns the share of clients that are not at the node of their room. `owned`: room ids of each endpoint. */
  elsewhere(owned: readonly (readonly string[])[]): number {
    const isElsewhere = ({ room, endpoint }: Client): boolean =>
      !owned[endpoint]!.some((id) => id.endsWith(`:r${room}`))
    return this.#clients.filter(isElsewhere).length / this.#clients.length
  }

  /** Stops the first `count` recorded clients from reading, or lets them continue. */
  stall(count: number, stalled: boolean): void {
    for (const { socket } of this.#recorded().slice(0, count))
      if (stalled) socket.pause()
      else socket.resume()
  }

  /** Returns the states of the recorded clients. */
  states(): Promise<unknown[]> {
    return Promise.all(this.#recorded().map(({ recorded = [] }) => this.#dialect.state(recorded)))
  }

  #recorded(): Client[] {
    return this.#clients.filter(({ recorded }) => recorded)
  }

  /** Ends all sessions. Resolves when the server has closed their connections. */
  async leave(): Promise<void> {
    const sockets = [...this.#clients, ...this.#extra].map(({ socket }) => socket.removeAllListeners('close'))
    const open = sockets.filter(({ readyState }) => readyState === WebSocket.OPEN)
    const closed = open.map((socket) => new Promise((resolve) => socket.once('close', resolve)))
    for (const socket of open)
      if (this.#dialect.goodbye) socket.send(this.#dialect.goodbye)
      else socket.close()
    await Promise.all(closed)
  }

  /** Ends all connections. */
  end(): void {
    for (const { socket } of [...this.#clients, ...this.#extra])
      socket.removeAllListeners('close').terminate()
  }
}
