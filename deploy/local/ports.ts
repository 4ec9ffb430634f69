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
 * Returns the documented ports, with a free port in the place of each that another process listens on. `freePorts`: all are free ports. If
 * another process takes a documented port before it is used, the start of its process fails with a message.
 */
export async function choosePorts(
  { nodes, controls, freePorts }: { nodes: number; controls: number; freePorts: boolean },
  random: Random,
): Promise<Ports> {
  const choose = async (documented: number): Promise<number> =>
    !freePorts && (await isFree(documented)) ? documented : freePort(random)
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
/** First port that `freePort` returns. */
const FROM = 10_000
/** First port that Linux gives to a program that asks for any. */
const EPHEMERAL = 32_768
const RANGE_FILE = '/proc/sys/net/ipv4/ip_local_port_range'
const TRIES = 1000

/**
 * Returns a port on which no process listens, and which no other call on this machine gets as long as this process runs: also while a
 * process that listens on it starts or restarts. It is no port that the system gives to a program that asks for any, or to an outgoing
 * connection. The claim of a port is that this process listens on the next one, so it ends with this process, in whatever way.
 */
export async function freePort(random: Random): Promise<number> {
  const below = ephemeralFrom()
  for (let tried = 0; tried < TRIES; tried++) {
    const port = FROM + 2 * Math.floor((random.float() * (below - FROM)) / 2)
    if ((await listening(port + 1)) && (await isFree(port))) return port
  }
  throw new Error(`${TRIES} ports from ${FROM} to ${below - 1} of this machine were tried, and all are taken`)
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
  if (server) await new Promise((resolve) => server.close(resolve))
  return server !== undefined
}

/** The first port that the system gives to a program that asks for any. */
function ephemeralFrom(): number {
  try {
    const from = Number(readFileSync(RANGE_FILE, 'utf8').trim().split(/\s+/)[0])
    return from > FROM + 2 * TRIES ? from : EPHEMERAL
  } catch {
    return EPHEMERAL
  }
}
