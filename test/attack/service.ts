import { LocalCluster } from '../../deploy/local/local-cluster.ts'
import { call, type Target } from './target.ts'

/** Options of `startService`. */
interface ServiceOptions {
  readonly nodes: number
  readonly roomsDir: string
  /** Variables of its processes. */
  readonly env?: NodeJS.ProcessEnv
  /** Called with a line about each process that ended without a request of this process. */
  readonly onEnd: (line: string) => void
}

/** Starts Redis, control and nodes on this machine with their default limits, and makes a project. The caller closes the cluster. */
export async function startService({ nodes, roomsDir, env, onEnd }: ServiceOptions) {
  const cluster = await LocalCluster.prepare({
    nodes,
    controls: 1,
    balancer: 'auto',
    env: {
      ...process.env,
      NODE_ENV: 'production',
      ROOMS_DIR: roomsDir,
      HEARTBEAT_SECONDS: '10',
      LOG_LEVEL: 'error',
      ...env,
    },
    tell: (line, asked) => void (asked || onEnd(line)),
  })
  try {
    await cluster.start()
    const { secrets } = cluster
    const access = { controlUrl: cluster.controlUrl, operatorToken: secrets.operatorToken }
    const { id: projectId } = await call(access, '/projects', { name: 'under attack' })
    const target: Target = {
      ...access,
      frontUrl: cluster.wsUrl,
      wsUrls: cluster.nodes.map(({ wsUrl }) => wsUrl),
      adminUrls: cluster.nodes.map(({ adminUrl }) => adminUrl),
      nodePids: cluster.nodes.map(({ child }) => child.pid ?? 0),
      redisUrl: cluster.redisUrl,
      projectId: projectId!,
    }
    return { cluster, target }
  } catch (error) {
    await cluster.close()
    throw error
  }
}
