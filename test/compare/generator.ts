import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import type { Credentials } from '../../loadtest/issuer.ts'
import type { Scenario } from './scenarios.ts'
import { type Listening, mapOf } from './servers/served.ts'

/** The load generator. It decodes no updates: clients that measure round trips search for the bytes of one number. */

/** Number of clients that connect at once. A client that waits to be rerouted is idle for most of that time. */
const CONNECTING = { known: 128, rerouted: 500 }
const CONNECT_MS = 15_000
/** One of this many clients measures round trips. */
const SAMPLED = 20
/** A client with a longer round trip than this at the end of a window counts with the time so far. */
const OVERDUE_MS = 200
/** Measured clients send integers from the first to the second as x. All encodings tell them apart from most coordinates. */
const MARKS = [256, 999] as const

/** What a client needs to connect. */
export interface Endpoint extends Listening {
  /** For roomful: a token for each client. */
  readonly credentials: readonly Credentials[]
  /** For roomful: clients move to the node of their room. */
  readonly direct: boolean
}

export interface Dialect {
  /** The endpoint of a room's node, where the client knows it. */
  endpoint?(endpoints: readonly Endpoint[], room: number): Endpoint | undefined
  /** Connects client number `client` and joins a room. Resolves when it has the room's state. */
  join(endpoint: Endpoint, client: number, room: string): Promise<Joined>
  /** Watches the list of the rooms of a map. Absent: the server has no lists. */
  watch?(endpoint: Endpoint, client: number, map: string): Promise<Joined>
  /** Does what a client has done before it looks for a room. The returned function finds a room of a map with a free seat, and joins it. */
  finder?(endpoint: Endpoint, client: number, map: string): Promise<() => Promise<Joined>>
  /** Encodes a move, to a given x where there is one. `ref`: the server acknowledges it. */
  move(room: string, x?: number, ref?: number): Uint8Array | string
  /** Encodes an input that changes nothing. */
  nudge(room: string): Uint8Array | string
  /** The bytes of an x from 256 to 999 in an update. */
  mark(x: number): Buffer
  isUpdate(bytes: Buffer): boolean
  /** Answers a ping of the protocol. */
  answer?(socket: WebSocket, bytes: Buffer): void
  /** The state of a client that has received these messages and no others. */
  state(messages: readonly Buffer[]): unknown
}

/** A client that has the state of its room. */
export interface Joined {
  readonly socket: WebSocket
  readonly messages: Buffer[]
  /** The port of its node, if that is not the one it connected to first. */
  readonly port?: number
}

/** A websocket that is not yet open. Attach listeners before you await anything: messages may come with the upgrade. */
export const dial = (port: number, path: string, subprotocol?: string): WebSocket =>
  new WebSocket(`ws://127.0.0.1:${port}${path}`, subprotocol, {
    perMessageDeflate: false,
    skipUTF8Validation: true,
    handshakeTimeout: CONNECT_MS,
  })

/** One client in a room. */
interface Client {
  readonly socket: WebSocket
  readonly room: number
  /** Its number in the room. */
  readonly seat: number
  /** Index of its endpoint. */
  readonly endpoint: number
  readonly recorded: Buffer[] | undefined
  updates: number
  sent: number
  /** Measures round trips: the x that was sent last, and when, until it has come back. */
  sample: { x: number; bytes: Buffer; since: number | undefined } | undefined
}

/** Totals of all clients in a window of time. */
export interface Received {
  readonly seconds: number
  readonly updates: number
  /** Updates of the client that received fewest. */
  readonly fewest: number
  /** Payload of all messages. */
  readonly bytes: number
  readonly inputs: number
  /** From an input to the update that shows it, milliseconds. */
  readonly roundTrips: readonly number[]
  /** Utilisation of the generator's event loop, 0 to 1. */
  readonly busy: number
}

type Sending = Pick<Scenario, 'inputs' | 'nudges' | 'reliable'>
const anyOf = <T>(all: readonly T[]): T => all[Math.floor(Math.random() * all.length)]!

/** Calls `work` with each item, with so many calls at once. */
async function each<T>(items: readonly T[], atOnce: number, work: (item: T) => Promise<void>): Promise<void> {
  const waiting = [...items]
  const next = async (): Promise<void> => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) await work(item)
  }
  await Promise.all(Array.from({ length: atOnce }, next))
}

/** The clients of one server. */
export class Clients {
  /** Close reasons of connections that the server ended. */
  readonly lost: string[] = []
  readonly #dialect: Dialect
  readonly #endpoints: readonly Endpoint[]
  readonly #clients: Client[] = []
  /** Watchers, and clients that have found a room. */
  readonly #extra: Joined[] = []
  #numbered = 0
  #bytes = 0
  #inputs = 0
  #roundTrips: number[] = []

  constructor(dialect: Dialect, endpoints: readonly Endpoint[]) {
    this.#dialect = dialect
    this.#endpoints = endpoints
  }

  get count(): number {
    return this.#clients.length
  }

  /**
   * Connects clients until there are `count`, in rooms of `perRoom`. The first `recorded` keep all messages. The first client of a
   * room takes the endpoints in turn, so that each node opens as many rooms; the others take any. Resolves when all have joined.
   */
  async join(count: number, perRoom: number, recorded = 0): Promise<void> {
    const numbers = Array.from({ length: count }, (_, number) => number).slice(this.#clients.length)
    const isFirst = (number: number): boolean => number % perRoom === 0
    const direct = this.#endpoints.some((endpoint) => endpoint.direct)
    const atOnce = CONNECTING[direct ? 'rerouted' : 'known']
    const join = (number: number) => this.#join(number, perRoom, number < recorded)
    await each(numbers.filter(isFirst), atOnce, join)
    await each(
      numbers.filter((number) => !isFirst(number)),
      atOnce,
      join,
    )
    // The order of sending: the members of a room are spread over time, so that every flush has a change.
    this.#clients.sort((a, b) => a.seat - b.seat || a.room - b.room)
  }

  async #join(number: number, perRoom: number, recorded: boolean): Promise<void> {
    const [room, seat] = [Math.floor(number / perRoom), number % perRoom]
    const all = this.#endpoints
    const any = seat === 0 ? all[room % all.length]! : anyOf(all)
    const first = this.#dialect.endpoint?.(all, room) ?? any
    const { socket, messages, port = first.port } = await this.#dialect.join(first, number, `r${room}`)
    const client: Client = {
      socket,
      room,
      seat,
      endpoint: all.findIndex((other) => other.port === port),
      recorded: recorded ? messages : undefined,
      updates: 0,
      sent: 0,
      sample: undefined,
    }
    if (number % SAMPLED === 0)
      client.sample = { x: MARKS[0], bytes: this.#dialect.mark(MARKS[0]), since: undefined }
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

  /** So many clients watch lists from now on. */
  async watch(count: number): Promise<void> {
    const numbers = this.#others(count)
    const [endpoint] = this.#endpoints
    const watch = this.#dialect.watch!
    this.#extra.push(...(await Promise.all(numbers.map((n) => watch(endpoint!, n, mapOf(n))))))
  }

  /** So many clients get ready. The returned function: each finds a room and joins it, some of them at once. */
  async finders(count: number, atOnce: number): Promise<() => Promise<void>> {
    const [endpoint] = this.#endpoints
    const finder = this.#dialect.finder!
    const ready: (() => Promise<Joined>)[] = []
    await each(this.#others(count), atOnce, async (n) => {
      ready.push(await finder(endpoint!, n, mapOf(n)))
    })
    return () =>
      each(ready, atOnce, async (find) => {
        this.#extra.push(await find())
      })
  }

  /** Numbers for clients that have none yet. */
  #others(count: number): number[] {
    const first = this.#clients.length + this.#numbered
    this.#numbered += count
    return Array.from({ length: count }, (_, i) => first + i)
  }

  /** Plays for so many seconds. Each client sends at its rate by absolute deadlines. */
  async play(seconds: number, sending: Sending): Promise<Received> {
    const start = performance.now()
    const load = performance.eventLoopUtilization()
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
      seconds: (end - start) / 1_000,
      updates: updates.reduce((sum, each) => sum + each, 0),
      fewest: Math.min(...updates),
      bytes: this.#bytes,
      inputs: this.#inputs,
      roundTrips: [...this.#roundTrips, ...open.filter((waited) => waited > OVERDUE_MS)],
      busy: performance.eventLoopUtilization(load).utilization,
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

  /** The share of clients at another node than their room's. `owned`: the room ids of each endpoint. */
  elsewhere(owned: readonly (readonly string[])[]): number {
    const isElsewhere = ({ room, endpoint }: Client): boolean =>
      !owned[endpoint]!.some((id) => id.endsWith(`:r${room}`))
    return this.#clients.filter(isElsewhere).length / this.#clients.length
  }

  /** The first `count` clients stop reading, or continue. They are recorded. */
  stall(count: number, stalled: boolean): void {
    for (const { socket } of this.#recorded().slice(0, count))
      if (stalled) socket.pause()
      else socket.resume()
  }

  /** The states of the recorded clients. */
  states(): Promise<unknown[]> {
    return Promise.all(this.#recorded().map(({ recorded = [] }) => this.#dialect.state(recorded)))
  }

  #recorded(): Client[] {
    return this.#clients.filter(({ recorded }) => recorded)
  }

  /** Ends all connections. */
  end(): void {
    for (const { socket } of [...this.#clients, ...this.#extra])
      socket.removeAllListeners('close').terminate()
  }
}
