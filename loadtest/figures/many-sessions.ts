import { setTimeout as sleep } from 'node:timers/promises'
import { Load, type Player } from '../bench/load.ts'
import { joinRoomful } from '../bench/players.ts'
import type { FiguresCluster } from './cluster.ts'
import { memoryOf } from './memory.ts'
import { type Rest, rest, watch } from './rest.ts'

/** What so many sessions cost a node that do nothing but be there. */
export interface IdleSessions {
  readonly sessions: number
  readonly per_second: number
  /** Of the node, for each session: in use, and taken from the system. */
  readonly used_bytes: number
  readonly rss_bytes: number
  readonly rest: Rest
}

/** What a node, and Redis, have to do while so many sessions play. */
export interface PlayingSessions {
  readonly sessions: number
  readonly rooms: number
  readonly updates_per_second: number
  readonly inputs_per_second: number
  readonly bytes_per_update: number
  readonly during: Rest
}

const CALM_MS = 3000
const AT_ONCE = 16

/** Joins `sessions` clients to rooms of `members`, and leaves them in peace for `rest_seconds`. */
export async function idleSessions(
  cluster: FiguresCluster,
  { sessions, members, rest_seconds }: { sessions: number; members: number; rest_seconds: number },
): Promise<IdleSessions> {
  const warm = await joinAll(cluster, 'warm', sessions / 10, members)
  await warm.close()
  await sleep(CALM_MS)
  const [node] = cluster.slots
  const before = await memoryOf(cluster.processes, node!.child)
  const began = performance.now()
  const load = await joinAll(cluster, 'idle', sessions, members)
  const seconds = (performance.now() - began) / 1000
  await sleep(CALM_MS)
  const after = await memoryOf(cluster.processes, node!.child)
  const calm = await rest(cluster, rest_seconds)
  await load.close()
  return {
    sessions,
    per_second: sessions / seconds,
    used_bytes: (after.used - before.used) / sessions,
    rss_bytes: (after.rss - before.rss) / sessions,
    rest: calm,
  }
}

/** Lets `sessions` clients in rooms of `members` send `rate` inputs a second each, for `seconds`. */
export async function playingSessions(
  cluster: FiguresCluster,
  { sessions, members, rate, seconds }: { sessions: number; members: number; rate: number; seconds: number },
): Promise<PlayingSessions> {
  const load = await joinAll(cluster, `play-${sessions}`, sessions, members)
  await load.run(CALM_MS / 1000, rate)
  let received = { updates: 0, inputs: 0, bytes: 0, seconds: 1 }
  const during = await watch(cluster, async () => {
    received = await load.run(seconds, rate)
  })
  await load.close()
  await sleep(CALM_MS)
  return {
    sessions,
    rooms: Math.ceil(sessions / members),
    updates_per_second: received.updates / received.seconds,
    inputs_per_second: received.inputs / received.seconds,
    bytes_per_update: received.bytes / Math.max(1, received.updates),
    during,
  }
}

async function joinAll(
  cluster: FiguresCluster,
  name: string,
  sessions: number,
  members: number,
): Promise<Load> {
  const { projectId: project_id, token } = cluster.credentials
  const port = Number(new URL(cluster.slot(0).ws_url).port)
  const rooms = Math.ceil(sessions / members)
  const players: Player[] = []
  let next = 0
  const work = async (): Promise<void> => {
    for (let i = next++; i < sessions; i = next++) {
      // Inputs go round all players: neighbours are in different rooms, so that each room has its inputs evenly spread.
      const room = { room_type: 'figures-game', key: `${name}-${i % rooms}` }
      players.push(await joinRoomful(port, { project_id, token }, room, 'move'))
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  return new Load(players)
}
