import { createServer } from 'node:net'
import type { PortBlock } from './port-block.ts'

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
 * The documented ports, and another free one for each that somebody else listens on. `free`: none of the documented ones. A port may still
 * be lost to another process before it is used; that process's start then fails and says so. Not so those of a `block`: with one, all are
 * its.
 */
export async function choosePorts(counts: {
  nodes: number
  controls: number
  free: boolean
  block?: PortBlock | undefined
}): Promise<Ports> {
  const taken = new Set<number>()
  const choose = async (documented: number): Promise<number> => {
    if (counts.block) return counts.block.take()
    const port = (!counts.free && (await freePort(documented))) || (await freePort(0))
    if (port === undefined) throw new Error('this machine has no free port')
    if (taken.has(port)) return choose(0)
    taken.add(port)
    return port
  }
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
    controls: await each(counts.controls, (index) => choose(3000 + index)),
    nodes: await each(counts.nodes, async (index) => ({
      websocket: await choose(4000 + index),
      admin: await choose(9100 + index),
    })),
  }
}

/** `port` when nobody listens on it, or any such one for 0; undefined when it is taken. */
function freePort(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(undefined))
    server.listen(port, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' ? address?.port : undefined))
    })
  })
}
