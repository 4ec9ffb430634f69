import type { FiguresCluster, Slot } from './cluster.ts'

/** CPU time of the processes of a cluster since their start, seconds. */
export interface CpuTimes {
  readonly nodes: readonly number[]
  readonly redis: number
  /** Of this process: it plays the clients. */
  readonly clients: number
}

/** What every process of `slots`, Redis and this one have used so far. */
export async function cpuTimes(cluster: FiguresCluster, slots: readonly Slot[]): Promise<CpuTimes> {
  const info = await cluster.redisInfo('cpu')
  const { user, system } = process.cpuUsage()
  return {
    nodes: await Promise.all(slots.map((slot) => cluster.metric(slot, 'service_process_cpu_seconds_total'))),
    redis: Number(info.get('used_cpu_user')) + Number(info.get('used_cpu_sys')),
    clients: (user + system) / 1e6,
  }
}

/** What was used between two readings, of one core: 0.5 is half of it. */
export const cpuShares = (before: CpuTimes, after: CpuTimes, seconds: number): CpuTimes => ({
  nodes: after.nodes.map((time, i) => (time - (before.nodes[i] ?? 0)) / seconds),
  redis: (after.redis - before.redis) / seconds,
  clients: (after.clients - before.clients) / seconds,
})
