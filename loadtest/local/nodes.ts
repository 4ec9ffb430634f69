import { type Child, describeExit } from '../../deploy/local/child.ts'
import type { LocalService } from '../scenario.ts'

/**
 * The nodes among the processes of a cluster, as a scenario ends and starts them. `on_disorder` is told, in a line, of one that was to end
 * in order and did not come to it.
 */
export function nodesOf(
  children: ReadonlyMap<string, Child>,
  on_disorder: (line: string) => void,
): LocalService {
  const nodes = [...children.keys()].filter((name) => name.startsWith('node-'))
  const find = (node: string): Child => {
    const child = nodes.includes(node) ? children.get(node) : undefined
    if (!child) throw new Error(`there is no ${node}; there are ${nodes.join(', ')}`)
    return child
  }
  return {
    nodes,
    async restart(node) {
      const child = find(node)
      child.end()
      const exit = await child.ended
      if (exit.code !== 0)
        on_disorder(
          `${node} was told to end in order, and did not (${describeExit(exit)}); ${child.log_file} may say why`,
        )
      await child.start()
    },
    kill: (node) => find(node).kill(),
    start: (node) => find(node).start(),
  }
}
