import type { Redis } from 'ioredis'
import type { Logger } from 'pino'
import { type Clock, sleep } from '../../clock.ts'
import { hashTag, StoreUnavailable } from '../port.ts'
import type { Endpoint } from './address.ts'
import { type Clients, disconnect } from './clients.ts'
import { NotRun, type Observers } from './connection.ts'
import { Outage, type Send, Server, type Servers } from './servers.ts'

/** Interval in milliseconds between requests for the slots of a working Cluster. Redirections report most changes immediately. */
const CALM_MS = 10_000
/** The same interval while a master is unreachable. */
const TROUBLE_MS = 100
/** Delay in milliseconds before a command is sent again that the Cluster has deferred. */
const LATER_MS = 50

/** Number of slots of a Redis Cluster. */
const SLOTS = 16384

/** CRC16 of each byte, as XMODEM computes it: polynomial 0x1021, start 0. */
const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1
  return crc
})

/**
 * Returns the slot of a key or channel. https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model
 */
export function slotOf(key: string): number {
  let crc = 0
  for (const byte of Buffer.from(hashTag(key))) crc = (crc << 8) ^ TABLE[((crc >> 8) ^ byte) & 0xff]!
  return (crc & 0xffff) % SLOTS
}

/** Slots of one master, both ends included. */
interface SlotRange {
  readonly first: number
  readonly last: number
  readonly master: Endpoint
}

/** Reads the answer to CLUSTER SLOTS. `asked` replaces a missing address of the answering server. */
function slotRanges(reply: unknown, asked: Endpoint): SlotRange[] {
  return (reply as [number, number, [string | null, number]][]).map(([first, last, [host, port]]) => ({
    first,
    last,
    master: { host: host || asked.host, port },
  }))
}

interface ClusterParts {
  readonly clients: Clients
  /** Servers that are asked first. They name the others. */
  readonly seeds: readonly Endpoint[]
  readonly clock: Clock
  readonly log: Logger
  readonly timeoutMs: number
  readonly observers: Observers
}

/** `host:port`. */
export const nameOf = ({ host, port }: Endpoint): string => `${host}:${port}`

/**
 * Masters of a Redis Cluster. Each is a `Server` with two connections, which fail and return like those of a single Redis. This class maps
 * slots to masters, follows redirections, and asks other servers while a master is unreachable.
 */
export class ClusterServers implements Servers {
  readonly #parts: ClusterParts
  readonly #outage = new Outage()
  readonly #servers = new Map<string, Server>()
  readonly #endpoints = new Map<Server, Endpoint>()
  readonly #slots: (Server | undefined)[] = Array.from({ length: SLOTS }, () => undefined)
  readonly #onServer: ((server: Server) => void)[] = []
  readonly #onMoved: (() => void)[] = []
  /** Servers that did not answer their last command. They are not asked about the Cluster. */
  readonly #suspects = new Set<Server>()
  #looking = false
  #lookAgain = false
  #closed = false
  #reason = 'no server answered'
  #cancel: () => void = () => undefined

  constructor(parts: ClusterParts) {
    this.#parts = parts
  }

  all(): readonly Server[] {
    return [...this.#servers.values()]
  }

  serverOf(key: string): Server | undefined {
    return this.#slots[slotOf(key)]
  }

  async run<T>(
    operation: string,
    key: string,
    send: Send<T>,
    by: 'commands' | 'listener' = 'commands',
  ): Promise<T> {
    const { clock, timeoutMs } = this.#parts
    const slot = slotOf(key)
    const until = clock.monotonic() + timeoutMs
    let asking: Server | undefined
    for (let hop = 1; ; hop++) {
      const server = asking ?? this.#slots[slot]
      try {
        if (!server) throw new NotRun(`no server of the store holds the slot of ${operation}`, 'later')
        const sending = asking ? afterAsking(send) : send
        const answer = await server[by].run(operation, (redis) => sending(redis, server))
        this.#suspects.delete(server)
        return answer
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error
        if (this.#closed || clock.monotonic() >= until) throw error
        asking = await this.#redirected(error, { slot, server, hop })
      }
    }
  }

  refresh(): void {
    this.#lookAgain = this.#looking
    if (!this.#looking) void this.#look()
  }

  onServer(callback: (server: Server) => void): void {
    this.#onServer.push(callback)
    for (const server of this.#servers.values()) callback(server)
  }

  onMoved(callback: () => void): void {
    this.#onMoved.push(callback)
  }

  get away(): boolean {
    return this.#outage.lasts
  }

  onReturn(callback: () => void): () => void {
    return this.#outage.onEnd(callback)
  }

  async opened(timeoutMs: number): Promise<void> {
    const { clock } = this.#parts
    const until = clock.monotonic() + timeoutMs
    this.#outage.begin()
    this.refresh()
    while (this.#outage.lasts) {
      if (this.#closed || clock.monotonic() >= until)
        throw new StoreUnavailable(`no connection to the store: ${this.#reason}`)
      await sleep(this.#parts.clock, LATER_MS)
    }
    await Promise.all(this.all().map((server) => server.opened(until - clock.monotonic())))
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#cancel()
    await Promise.all(this.all().map((server) => server.close()))
  }

  /** Handles a command that failed at `server`: returns the server for one redirected attempt, or throws `error` again. */
  async #redirected(
    error: StoreUnavailable,
    { slot, server, hop }: { slot: number; server: Server | undefined; hop: number },
  ): Promise<Server | undefined> {
    if (!(error instanceof NotRun)) {
      if (server) this.#suspects.add(server)
      this.refresh()
      throw error
    }
    if (error.why === 'unsent') {
      if (this.#slots[slot] === server) throw error
      return undefined
    }
    if (error.why === 'later' || hop > 4) await sleep(this.#parts.clock, LATER_MS)
    if (error.at && server) {
      const other = this.#server({ ...error.at, host: error.at.host || this.#endpoints.get(server)!.host })
      if (error.why === 'asking') return other
      this.#slots[slot] = other
      this.#moved()
    }
    this.refresh()
    return undefined
  }

  /** Requests the slots, and again after a short delay while a master is unreachable. */
  async #look(): Promise<void> {
    this.#cancel()
    this.#looking = true
    try {
      const ranges = await this.#ask()
      if (!this.#closed) this.#adopt(ranges)
    } catch (error) {
      this.#outage.begin()
      this.#reason = error instanceof Error ? error.message : String(error)
    }
    this.#looking = false
    if (this.#closed) return
    const soon = this.#lookAgain || this.#outage.lasts
    this.#lookAgain = false
    this.#cancel = this.#parts.clock.schedule(soon ? TROUBLE_MS : CALM_MS, () => void this.#look())
  }

  /** Returns the first answer of a connected server without failures, otherwise of any reachable server. */
  async #ask(): Promise<SlotRange[]> {
    const trusted = this.all().filter((server) => server.commands.ready && !this.#suspects.has(server))
    try {
      return await Promise.any(trusted.map((server) => this.#askServer(server)))
    } catch {
      const known = [...this.#parts.seeds, ...this.#endpoints.values()]
      const endpoints = new Map(known.map((endpoint) => [nameOf(endpoint), endpoint]))
      const asked = [...endpoints.values()].map((endpoint) => this.#askOnce(endpoint))
      return await Promise.any(asked).catch((errors: AggregateError) => Promise.reject(errors.errors[0]))
    }
  }

  async #askServer(server: Server): Promise<SlotRange[]> {
    const reply = await server.commands.run('cluster slots', (redis) => redis.cluster('SLOTS'))
    return slotRanges(reply, this.#endpoints.get(server)!)
  }

  async #askOnce(endpoint: Endpoint): Promise<SlotRange[]> {
    const redis = this.#parts.clients.oneShot(endpoint)
    let reason: string | undefined
    redis.on('error', (error: NodeJS.ErrnoException) => {
      reason ??= error.message || error.code || error.name
    })
    try {
      return slotRanges(await redis.cluster('SLOTS'), endpoint)
    } catch (error) {
      throw new Error(reason ?? (error instanceof Error ? error.message : String(error)))
    } finally {
      disconnect(redis)
    }
  }

  /** Applies the answer of a server: connects to new masters, and closes the connections to former ones. */
  #adopt(ranges: readonly SlotRange[]): void {
    const homes = new Map<Server, number>()
    this.#slots.fill(undefined)
    for (const { first, last, master } of ranges) {
      const server = this.#server(master)
      this.#slots.fill(server, first, last + 1)
      homes.set(server, (homes.get(server) ?? 0) + last + 1 - first)
    }
    for (const server of this.all()) if (!homes.has(server)) this.#leave(server)
    const held = [...homes.values()].reduce((sum, count) => sum + count, 0)
    if (held < SLOTS) this.#reason = `${SLOTS - held} of the ${SLOTS} slots of the Cluster have no master`
    if (held < SLOTS) this.#outage.begin()
    this.#moved()
    this.#checkOutage()
  }

  #server(endpoint: Endpoint): Server {
    const name = nameOf(endpoint)
    const known = this.#servers.get(name)
    if (known) return known
    const { clients, log } = this.#parts
    const server = new Server(clients.both(endpoint), {
      ...this.#parts,
      name,
      log: log.child({ server: name }),
    })
    this.#servers.set(name, server)
    this.#endpoints.set(server, endpoint)
    server.commands.onReady(() => this.#checkOutage())
    server.commands.onLost((reason) => {
      if (this.#servers.get(name) !== server) return
      this.#reason = reason
      this.#outage.begin()
      if (!this.#looking) this.refresh()
    })
    for (const callback of this.#onServer) callback(server)
    return server
  }

  #leave(server: Server): void {
    this.#servers.delete(nameOf(this.#endpoints.get(server)!))
    this.#endpoints.delete(server)
    this.#suspects.delete(server)
    void server.close()
  }

  #moved(): void {
    for (const callback of this.#onMoved) callback()
  }

  /** The outage ends when every slot has a master and every master is connected. */
  #checkOutage(): void {
    if (!this.#outage.lasts || this.#slots.includes(undefined)) return
    if (this.all().every((server) => server.commands.ready)) this.#outage.end()
  }
}

/** Sends a command to a server that is taking over its slot, right after ASKING. */
function afterAsking<T>(send: Send<T>): Send<T> {
  return (redis: Redis, server) => {
    redis.asking().catch(() => undefined)
    return send(redis, server)
  }
}
