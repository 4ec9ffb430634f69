import type { LocalCluster } from './local-cluster.ts'
import { table } from './table.ts'

/** What is where, for whoever has just typed `npm run cluster`. */
export function banner(cluster: LocalCluster): string {
  const { ports, secrets } = cluster
  const at = (scheme: string, port: number): string => `${scheme}://127.0.0.1:${port}`
  const numbered = (what: string, ports_of: readonly number[], path = ''): string =>
    ports_of.map((port, index) => `${what}-${index + 1} ${port}${path}`).join(', ')
  const rows = [
    ['play', at('http', ports.games), 'open the arena in two tabs'],
    [
      'websocket',
      at('ws', ports.websocket),
      `${cluster.balancer} → ${numbered(
        'node',
        ports.nodes.map((node) => node.websocket),
      )}`,
    ],
    ['control API', at('http', ports.api), `${cluster.balancer} → ${numbered('control', ports.controls)}`],
    ...ports.nodes.map(({ admin }, index) => [
      index === 0 ? 'admin' : '',
      `${at('http', admin)}/admin`,
      `node-${index + 1}`,
    ]),
    ['redis', redisPlace(cluster.redis_url), cluster.child('redis') ? 'for this run' : 'given by REDIS_URL'],
    ['operator token', secrets.operator_token, 'for the control API'],
    ['internal token', secrets.internal_token, 'for the admin pages'],
    ['logs', cluster.folder, 'one file a process'],
  ]
  return `\n  roomful on ${ports.nodes.length === 1 ? 'one node' : `${ports.nodes.length} nodes`}\n\n${table(rows)}\n\n  Type help for what you can do, such as kill 1, redis down, status\n`
}

/** Without the password that a URL may carry. */
function redisPlace(url: string): string {
  const { protocol, host } = new URL(url)
  return `${protocol}//${host}`
}
