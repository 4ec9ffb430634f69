import { parseArgs } from 'node:util'

/** How large the cluster is to be, and what stands before it. */
export interface ClusterOptions {
  readonly nodes: number
  readonly controls: number
  /**
   * `auto`: haproxy where it is installed, else the built-in one. `none`: clients come to the nodes themselves. `outside`: one that the
   * caller starts.
   */
  readonly balancer: 'auto' | 'haproxy' | 'builtin' | 'none' | 'outside'
  /** Take ports that are free instead of the documented ones. */
  readonly freePorts: boolean
  /** Give nodes addresses of their own (ADVERTISE_URL), so that clients go to the node of their rooms. */
  readonly advertise: boolean
}

/** What the words behind `npm run cluster --` ask for. */
type ClusterRequest =
  | { readonly kind: 'run'; readonly options: ClusterOptions }
  | { readonly kind: 'help' }
  | { readonly kind: 'mistake'; readonly message: string }

const BALANCERS = ['auto', 'haproxy', 'builtin'] as const
const MOST = 9

export const OPTIONS_HELP = `Usage: npm run cluster -- [options]

Redis, control processes, nodes, a load balancer and the example games on this machine, with a prompt to break them one by one.

  --nodes N          nodes, 1–${MOST}; default 3
  --controls N       control processes, 1–${MOST}; default 2
  --balancer KIND    haproxy, or builtin (a small one for development only); default: haproxy where it is installed
  --free-ports       take any free ports instead of the documented ones
  --no-advertise     nodes have no ADVERTISE_URL: clients stay where they are, wherever their rooms run

REDIS_URL uses that Redis instead of starting one. Every other variable of roomful (NODE_LEASE_MS, LOG_LEVEL, ROOMS_DIR …) is passed on
to the processes.
`

/** Reads the words behind the command. */
export function parseOptions(words: readonly string[]): ClusterRequest {
  let values: Record<string, string | boolean | undefined>
  try {
    values = parseArgs({
      args: [...words],
      options: {
        nodes: { type: 'string', default: '3' },
        controls: { type: 'string', default: '2' },
        balancer: { type: 'string', default: 'auto' },
        'free-ports': { type: 'boolean', default: false },
        'no-advertise': { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    }).values
  } catch (error) {
    return { kind: 'mistake', message: error instanceof Error ? error.message : String(error) }
  }
  if (values.help) return { kind: 'help' }
  for (const name of ['nodes', 'controls'] as const)
    if (!new RegExp(`^[1-${MOST}]$`).test(String(values[name])))
      return { kind: 'mistake', message: `--${name} is "${values[name]}"; it may be: 1 to ${MOST}` }
  const balancer = BALANCERS.find((kind) => kind === values.balancer)
  if (balancer === undefined)
    return {
      kind: 'mistake',
      message: `--balancer is "${values.balancer}"; it may be: ${BALANCERS.join(', ')}`,
    }
  return {
    kind: 'run',
    options: {
      nodes: Number(values.nodes),
      controls: Number(values.controls),
      balancer,
      freePorts: values['free-ports'] === true,
      advertise: values['no-advertise'] !== true,
    },
  }
}
