import { LocalCluster } from '../../deploy/local/local-cluster.ts'
import { roomfulProgram } from '../../deploy/local/programs.ts'
import { systemClock } from '../../shared/clock.ts'
import { systemRandom } from '../../shared/random.ts'
import { call, type Target } from './target.ts'

const HOST = '127.0.0.1'

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
    options: { nodes, controls: 1, balancer: 'auto', freePorts: true, advertise: false },
    env: {
      ...process.env,
      NODE_ENV: 'production',
      ROOMS_DIR: roomsDir,
      HEARTBEAT_SECONDS: '10',
      LOG_LEVEL: 'error',
      ...env,
    },
    roomful: roomfulProgram().words,
    clock: systemClock,
    random: systemRandom,
    tell: (line, asked) => void (asked || onEnd(line)),
  })
  try {
    await cluster.start()
    const { ports, secrets } = cluster
    const access = { controlUrl: cluster.controlUrl, operatorToken: secrets.operatorToken }
    const { id: projectId } = await call(access, '/projects', { name: 'under attack' })
    const target: Target = {
      ...access,
      frontUrl: `ws://${HOST}:${ports.websocket}`,
      wsUrls: ports.nodes.map(({ websocket }) => `ws://${HOST}:${websocket}`),
      adminUrls: ports.nodes.map(({ admin }) => `http://${HOST}:${admin}`),
      nodePids: ports.nodes.map((_, index) => cluster.child(`node-${index + 1}`)?.pid ?? 0),
      redisUrl: cluster.redisUrl,
      projectId: projectId!,
    }
    return { cluster, target }
  } catch (error) {
    await cluster.close()
    throw error
  }
}
