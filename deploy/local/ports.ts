import { readFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import type { Random } from '../../shared/random.ts'

/** Ports of a cluster; all on 127.0.0.1. */
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
 * Returns the documented ports, with a port of `block` in the place of each that another process listens on. `free`: all are of the block.
 * If another process takes a documented port before it is used, the start of its process fails with a message.
 */
export async function choosePorts(
  { nodes, controls, free }: { nodes: number; controls: number; free: boolean },
  block: PortBlock,
): Promise<Ports> {
  const choose = async (documented: number): Promise<number> =>
    !free && (await isFree(documented)) ? documented : block.take()
  const numbers = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1)
  return {
    games: await choose(8080),
    api: await choose(3000),
    websocket: await choose(4000),
    balancer: await choose(8404),
    redis: await choose(6390),
    controls: await Promise.all(numbers(controls).map((n) => choose(3000 + n))),
    nodes: await Promise.all(
      numbers(nodes).map(async (n) => ({ websocket: await choose(4000 + n), admin: await choose(9100 + n) })),
    ),
  }
}

const HOST = '127.0.0.1'
/** Ports of a block, the claimed one included: as many as the largest cluster needs, and some that other programs may have. */
const SIZE = 48
/** First port of the first block. */
const FROM = 12_000
/** First port that Linux gives to a program that asks for any. */
const EPHEMERAL = 32_768
const RANGE_FILE = '/proc/sys/net/ipv4/ip_local_port_range'

/**
 * Neighbouring ports of this machine that belong to one cluster as long as it runs: also while a process that listens on one of them
 * starts or restarts, since no other claim gets them. None of them is a port that the system gives to a program that asks for any, or to
 * an outgoing connection. The process that claims a block listens on its first port, so the block is free again when that process has
 * ended, in whatever way.
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
    const last = from + blocks * size - 1
    throw new Error(`every block of ${size} ports from ${from} to ${last} of this machine is taken`)
  }

  /** Returns a port of the block on which no process listens, another each time. Rejects when there is none left. */
  async take(): Promise<number> {
    while (this.#next < this.#below) {
      const port = this.#next++
      if (await isFree(port)) return port
    }
    throw new Error(`the ports ${this.#first} to ${this.#below - 1} of this machine are all taken`)
  }

  /** Makes the block free again. */
  release(): Promise<void> {
    return closed(this.#claim)
  }
}

/** A server that listens on this port and keeps no process running; undefined when another process has the port. */
function listening(port: number): Promise<Server | undefined> {
  return new Promise((resolve) => {
    const server = createServer((socket) => socket.destroy())
    server.once('error', () => resolve(undefined))
    server.listen({ port, host: HOST, exclusive: true }, () => resolve(server.unref()))
  })
}

async function isFree(port: number): Promise<boolean> {
  const server = await listening(port)
  if (server) await closed(server)
  return server !== undefined
}

const closed = (server: Server): Promise<void> => new Promise((resolve) => server.close(() => resolve()))

/** The first port that the system gives to a program that asks for any. */
function ephemeralFrom(): number {
  try {
    const from = Number(readFileSync(RANGE_FILE, 'utf8').trim().split(/\s+/)[0])
    return from >= FROM + SIZE ? from : EPHEMERAL
  } catch {
    return EPHEMERAL
  }
}
