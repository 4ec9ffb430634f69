import type { RunContext } from '../scenario.ts'

/** CPU time per second of these nodes together while `work` runs. Default: of all. */
export async function cpuDuring(
  { local }: RunContext,
  work: () => Promise<unknown>,
  nodes: readonly string[] = local.nodes,
): Promise<number> {
  const read = async () => {
    const all = nodes.map((node) => local.metric(node, 'service_process_cpu_seconds_total'))
    return { at: performance.now(), cpu: (await Promise.all(all)).reduce((sum, each) => sum + each, 0) }
  }
  const before = await read()
  await work()
  const after = await read()
  return ((after.cpu - before.cpu) * 1000) / (after.at - before.at)
}
