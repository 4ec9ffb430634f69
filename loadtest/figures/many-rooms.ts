import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { connect } from '../../client/index.ts'
import type { Durability } from '../../dataplane/rooms/definition.ts'
import type { FiguresCluster } from './cluster.ts'
import { memoryOf } from './memory.ts'
import { type Rest, rest } from './rest.ts'

/** What rooms cost that nobody plays in. */
export interface ManyRooms {
  readonly rooms: number
  readonly creation_seconds: number
  /** Time from the join to the first state, of each room, milliseconds. */
  readonly joins_ms: readonly number[]
  readonly rooms_per_node: readonly number[]
  readonly empty: Rest
  /** With all rooms, and every member connected. */
  readonly connected: Rest
  /** With all rooms, and no member connected. */
  readonly idle: Rest
  /** The same, for as long as it takes until every record was kept alive once. */
  readonly period: Rest
  /** Per room, of the node that runs it and its edges together; negative when less is used than before. */
  readonly used_bytes_connected: number
  readonly used_bytes_idle: number
  readonly rss_bytes_idle: number
}

/** How long the nodes are left alone before they are measured: what a burst has left behind is done then. */
const CALM_MS = 3000
const AT_ONCE = 8

/** One session in each of so many rooms. */
const ROOMS_PER_SESSION = 10

/**
 * Opens `rooms` rooms with one member each, by clients at every node in turn, and measures the cluster before, with every member
 * connected, and after all their connections broke: the seats stay for as long as the sessions may be resumed.
 */
export async function manyRooms(
  cluster: FiguresCluster,
  {
    rooms,
    rest_seconds,
    period_seconds,
    durability,
  }: { rooms: number; rest_seconds: number; period_seconds: number; durability: Durability },
): Promise<ManyRooms> {
  await openRooms(cluster, durability, 'warm', rooms / 10).then((warm) => warm.leave())
  await sleep(CALM_MS)
  const memory_before = await memory(cluster)
  const empty = await rest(cluster, rest_seconds)

  const began = performance.now()
  const opened = await openRooms(cluster, durability, 'idle', rooms)
  const creation_seconds = (performance.now() - began) / 1000
  const rooms_per_node = await Promise.all(cluster.slots.map((slot) => cluster.metric(slot, 'service_rooms')))
  await sleep(CALM_MS)
  const memory_connected = await memory(cluster)
  const connected = await rest(cluster, rest_seconds)

  opened.cut()
  await sleep(CALM_MS)
  const memory_idle = await memory(cluster)
  const idle = await rest(cluster, rest_seconds)
  const period = await rest(cluster, period_seconds)
  return {
    rooms,
    creation_seconds,
    joins_ms: opened.joins_ms,
    rooms_per_node,
    empty,
    connected,
    idle,
    period,
    used_bytes_connected: (memory_connected.used - memory_before.used) / rooms,
    used_bytes_idle: (memory_idle.used - memory_before.used) / rooms,
    rss_bytes_idle: (memory_idle.rss - memory_before.rss) / rooms,
  }
}

interface OpenRooms {
  readonly joins_ms: readonly number[]
  /** Leaves every room. */
  leave(): Promise<void>
  /** Breaks every connection, so that sessions and seats stay. */
  cut(): void
}

async function openRooms(
  cluster: FiguresCluster,
  durability: Durability,
  name: string,
  rooms: number,
): Promise<OpenRooms> {
  const sockets: WebSocket[] = []
  const clients: Awaited<ReturnType<typeof connect>>[] = []
  const opened: { leave(): Promise<void> }[] = []
  const joins_ms: number[] = []
  let next = 0
  const work = async (): Promise<void> => {
    for (let i = next++; i < rooms / ROOMS_PER_SESSION; i = next++) {
      const client = await connect(cluster.slot(i).ws_url, {
        ...cluster.credentials,
        reconnect: false,
        WebSocket: class extends WebSocket {
          constructor(url: string, protocols: string[]) {
            super(url, protocols)
            sockets.push(this)
          }
        },
      })
      clients.push(client)
      for (let k = 0; k < ROOMS_PER_SESSION; k++) {
        const began = performance.now()
        opened.push(await client.join(`figures-${durability}`, { key: `${name}-${i}-${k}` }))
        joins_ms.push(performance.now() - began)
      }
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  return {
    joins_ms,
    async leave() {
      for (const room of opened) await room.leave()
      for (const client of clients) client.close()
    },
    cut() {
      for (const socket of sockets) socket.terminate()
    },
  }
}

/** Of all nodes together. */
async function memory(cluster: FiguresCluster): Promise<{ used: number; rss: number }> {
  let [used, rss] = [0, 0]
  for (const { child } of cluster.slots) {
    const one = await memoryOf(cluster.processes, child)
    used += one.used
    rss += one.rss
  }
  return { used, rss }
}
