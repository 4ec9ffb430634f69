import { execFileSync } from 'node:child_process'

/** The process `root` and all below it, as they are now. */
export function processTree(root: number): number[] {
  const children = new Map<number, number[]>()
  for (const line of execFileSync('ps', ['-eo', 'pid=,ppid='], { encoding: 'utf8' }).trim().split('\n')) {
    const [pid, parent] = line.trim().split(/\s+/).map(Number) as [number, number]
    children.set(parent, [...(children.get(parent) ?? []), pid])
  }
  const below = (pid: number): number[] => [pid, ...(children.get(pid) ?? []).flatMap(below)]
  return below(root)
}

/** Those of the processes that are still there. */
export const stillThere = (pids: readonly number[]): number[] =>
  pids.filter((pid) => {
    try {
      process.kill(pid, 0)
      return true
    } catch {
      return false
    }
  })
