import type { RunContext } from '../scenario.ts'

/** CPU seconds since the start of processes of the service together. */
export async function cpuSeconds(
  { local }: Pick<RunContext, 'local'>,
  names: readonly string[],
): Promise<number> {
  const all = names.map((name) => local.metric(name, 'service_process_cpu_seconds_total'))
  return (await Promise.all(all)).reduce((sum, each) => sum + each, 0)
}
