import { readFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import type { Random } from '../../shared/random.ts'

/** Where everything listens; all on 127.0.0.1. */
export interface Ports {
  readonly games: number
  /** The control API, behind the load balancer. */
  readonly api: number
  /** The websocket, behind the load balancer. */
  readonly websocket: number
  /** Health and metrics of haproxy itself. */
  readonly balancer: number
  readonly redis: number
  readonly controls: readonly number[]
  readonly nodes: readonly { readonly websocket: number; readonly admin: number }[]
}

/**
 * The documented ports, and one of `block` for each that another process listens on. `free`: all are of the block. A documented one may
 * still be lost to another process before it is used; that process's start then fails and says so.
 */
export async function choosePorts(
  { nodes, controls, free }: { nodes: number; controls: number; free: boolean },
  block: PortBlock,
): Promise<Ports> {
  const choose = async (documented: number): Promise<number> =>
    !free && (await isFree(documented)) ? documented : block.take()
  const each = async <T>(count: number, make: (index: number) => Promise<T>): Promise<T[]> => {
    const made: T[] = []
    for (let index = 1; index <= count; index++) made.push(await make(index))
    return made
  }
  return {
    games: await choose(8080),
    api: await choose(3000),
    websocket: await choose(4000),
    balancer: await choose(8404),
    redis: await choose(6390),
    controls: await each(controls, (index) => choose(3000 + index)),
    nodes: await each(nodes, async (index) => ({
      websocket: await choose(4000 + index),
      admin: await choose(9100 + index),
    })),
  }
}

const HOST = '127.0.0.1'
/** Ports of a cluster's block, the claimed one included: as many as the largest cluster listens on, and some that other programs may have. */
const SIZE = 48
/** Where the blocks begin. */
const FROM = 12_000
/** Where Linux begins with the ports it gives to a program that asks for any. */
const EPHEMERAL = 32_768
const RANGE_FILE = '/proc/sys/net/ipv4/ip_local_port_range'

/**
 * Neighbouring ports of this machine that belong to one cluster for as long as it runs: also while a process that listens on one of them is
 * being started, or started again, since no other claim gets them. They are none of those that the system gives to
 * a program that asks for any port, or to connections that go out. What claims a block is listening on its first port, so it is free
 * again when that process has ended, in whatever way.
 */
export class PortBlock {
  readonly #first: number
  readonly #below: number
  readonly #claim: Server
  #next: number

  private constructor(first: number, size: number, claim: Server) {
    this.#first = first
    this.#below = first + size
    this.#claim = claim
    this.#next = first + 1
  }

  /** Claims a block of `size` ports that is free, of those from one port to below another. Rejects when there is none. */
  static async claim(
    random: Random,
    {
      from = FROM,
      below = ephemeralFrom(),
      size = SIZE,
    }: { from?: number; below?: number; size?: number } = {},
  ): Promise<PortBlock> {
    const blocks = Math.floor((below - from) / size)
    const begin = Math.floor(random.float() * blocks)
    for (let tried = 0; tried < blocks; tried++) {
      const first = from + ((begin + tried) % blocks) * size
      const claim = await listening(first)
      if (claim) return new PortBlock(first, size, claim)
    }
    throw new Error(
      `every block of ${size} ports from ${from} to ${from + blocks * size - 1} of this machine is taken`,
    )
  }

  /** One of its ports, another each time, on which no one listens. Rejects when there is none left. */
  async take(): Promise<number> {
    while (this.#next < this.#below) {
      const port = this.#next++
      if (await isFree(port)) return port
    }
    throw new Error(`the ports ${this.#first} to ${this.#below - 1} of this machine are all taken`)
  }

  /** The block is free again. */
  release(): Promise<void> {
    return closed(this.#claim)
  }
}

/** A server that listens on this very port and keeps no process going; undefined when another process does. */
function listening(port: number): Promise<Server | undefined> {
  return new Promise((resolve) => {
    const server = createServer((socket) => socket.destroy())
    server.once('error', () => resolve(undefined))
    server.listen({ port, host: HOST, exclusive: true }, () => resolve(server.unref()))
  })
}

/** Whether no one listens on this port. */
async function isFree(port: number): Promise<boolean> {
  const server = await listening(port)
  if (server) await closed(server)
  return server !== undefined
}

const closed = (server: Server): Promise<void> => new Promise((resolve) => server.close(() => resolve()))

/** The first port that the system gives to a program that asks for any. */
function ephemeralFrom(): number {
  try {
    const [from] = readFileSync(RANGE_FILE, 'utf8').trim().split(/\s+/).map(Number)
    return from !== undefined && from >= FROM + SIZE ? from : EPHEMERAL
  } catch {
    return EPHEMERAL
  }
}
