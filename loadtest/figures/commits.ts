import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from '../../client/index.ts'
import { randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import type { FiguresCluster } from './cluster.ts'
import { type CpuTimes, cpuShares, cpuTimes } from './cpu.ts'
import type { FigureRoom } from './room.ts'

const ROOMS_PER_CLIENT = 8
const WARM_MS = 2000

/** Commits of one node, as many as it takes. */
export interface CommitRate {
  readonly rooms: number
  /** Commits per second, window by window. */
  readonly rates: readonly number[]
  /** Of one core, over all windows. */
  readonly cpu: CpuTimes
}

/** Closed loops of one op in each of `rooms` journal rooms at the one node of `cluster`, which has no other rooms; commits counted in `windows` of `window_ms`. */
export async function commitRate(
  cluster: FiguresCluster,
  { rooms, windows, window_ms }: { rooms: number; windows: number; window_ms: number },
): Promise<CommitRate> {
  const slot = cluster.slot(0)
  const run = randomToken(systemRandom, 8)
  let going = true
  const loops: Promise<void>[] = []
  const clients = []
  for (let i = 0; i < rooms / ROOMS_PER_CLIENT; i++) {
    const client = await connect(slot.ws_url, cluster.credentials)
    clients.push(client)
    for (let k = 0; k < Math.min(ROOMS_PER_CLIENT, rooms - i * ROOMS_PER_CLIENT); k++) {
      const room = await client.join<FigureRoom>('figures-journal', { key: `${run}-${i}-${k}` })
      loops.push(loop(async (n) => room.send('op', { n })))
    }
  }
  async function loop(once: (n: number) => Promise<void>): Promise<void> {
    for (let n = 1; going; n++) await once(n)
  }
  await sleep(WARM_MS)
  const here = await cluster.metric(slot, 'service_rooms')
  if (here !== rooms) throw new Error(`${here} of ${rooms} rooms are at the node whose commits are counted`)
  const rates: number[] = []
  const count = () => cluster.metric(slot, 'service_commit_duration_seconds_count')
  const before = await cpuTimes(cluster, [slot])
  const began = performance.now()
  let [from, commits] = [performance.now(), await count()]
  for (let i = 0; i < windows; i++) {
    await sleep(window_ms)
    const [now, total] = [performance.now(), await count()]
    rates.push(((total - commits) * 1000) / (now - from))
    from = now
    commits = total
  }
  const seconds = (performance.now() - began) / 1000
  const cpu = cpuShares(before, await cpuTimes(cluster, [slot]), seconds)
  going = false
  await Promise.all(loops)
  for (const client of clients) client.close()
  while ((await cluster.metric(slot, 'service_rooms')) > 0) await sleep(100)
  return { rooms, rates, cpu }
}
