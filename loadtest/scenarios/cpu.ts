import type { RunContext } from '../scenario.ts'

/** CPU seconds of these processes together, since they have started. */
export async function cpuSeconds(
  { local }: Pick<RunContext, 'local'>,
  names: readonly string[],
): Promise<number> {
  const all = names.map((name) => local.metric(name, 'service_process_cpu_seconds_total'))
  return (await Promise.all(all)).reduce((sum, each) => sum + each, 0)
}

/** CPU time per second of these nodes together while `work` runs. Default: of all. */
export async function cpuDuring(
  ctx: RunContext,
  work: () => Promise<unknown>,
  nodes: readonly string[] = ctx.local.nodes,
): Promise<number> {
  const read = async () => ({ at: performance.now(), cpu: await cpuSeconds(ctx, nodes) })
  const before = await read()
  await work()
  const after = await read()
  return ((after.cpu - before.cpu) * 1000) / (after.at - before.at)
}
