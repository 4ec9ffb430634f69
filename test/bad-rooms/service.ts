import { execFileSync } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort, roomfulProgram } from '../../deploy/local/machine.ts'
import { type Child, Children } from '../../deploy/local/processes.ts'
import { randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import { startService } from '../attack/service.ts'
import { call, type Target } from '../attack/target.ts'

const HOST = '127.0.0.1'
const ROOMS = `${import.meta.dirname}/rooms`
const NODES = 3
/** Heap of a node. Small, so that code that allocates without end does not take the memory of the machine. */
const HEAP_MIB = 256

/** A running service whose room code is bad. */
export interface BadService {
  readonly target: Target
  /** The processes that run room code. */
  readonly processes: readonly Child[]
  /** Folder of the logs. */
  readonly folder: string
  /** Path of the fault log. */
  readonly faultLog: string
  /** Ends every process. `keep`: the folder remains. */
  close(keep: boolean): Promise<void>
}

/** Files of a service below `folder`, and its variables. */
function prepare(folder: string) {
  const faultLog = join(folder, 'faults.jsonl')
  const fifo = join(folder, 'fifo')
  execFileSync('mkfifo', [fifo])
  return { faultLog, env: variables(faultLog, fifo) }
}

const variables = (faultLog: string, fifo: string) => ({
  FAULT_LOG: faultLog,
  FIFO: fifo,
  NODE_OPTIONS: `--max-old-space-size=${HEAP_MIB}`,
  // The bound on new rooms would protect the service from a single player, and hide what else does.
  NEW_ROOMS_PER_MINUTE: '0',
})

const remove = (folder: string) => rm(folder, { recursive: true, force: true })

/** Starts a cluster of three nodes, control and Redis. */
export async function startCluster(): Promise<BadService> {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-bad-rooms-'))
  const { faultLog, env } = prepare(folder)
  const { cluster, target } = await startService({
    nodes: NODES,
    roomsDir: ROOMS,
    env,
    onEnd: () => undefined,
  })
  return {
    target,
    processes: cluster.nodes.map(({ child }) => child),
    folder: cluster.folder,
    faultLog,
    close: async (keep) => {
      await cluster.close()
      if (!keep) await Promise.all([remove(cluster.folder), remove(folder)])
    },
  }
}

/** Starts `roomful dev`. */
export async function startDev(): Promise<BadService> {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-bad-rooms-'))
  const { faultLog, env } = prepare(folder)
  const port = () => freePort(systemRandom)
  const [websocket, admin, control] = [await port(), await port(), await port()]
  const operatorToken = randomToken(systemRandom, 32)
  const children = new Children({ folder })
  const devEnv = {
    ...process.env,
    ...env,
    // npm is none of its business.
    npm_lifecycle_event: undefined,
    ROOMS_DIR: ROOMS,
    WS_PORT: String(websocket),
    ADMIN_PORT: String(admin),
    CONTROL_PORT: String(control),
    CONTROL_API_TOKENS: operatorToken,
    LOG_LEVEL: 'error',
    LOG_FORMAT: 'json',
  }
  const child = children.addRoomful('dev', () => ({ words: [...roomfulProgram().words, 'dev'], env: devEnv }))
  const close = async (keep: boolean): Promise<void> => {
    await children.close()
    if (!keep) await remove(folder)
  }
  try {
    await child.start()
    const access = { controlUrl: `http://${HOST}:${control}`, operatorToken }
    const { id: projectId } = await call(access, '/projects', { name: 'bad rooms' })
    const url = `ws://${HOST}:${websocket}`
    const target: Target = {
      ...access,
      frontUrl: url,
      wsUrls: [url],
      adminUrls: [`http://${HOST}:${admin}`],
      nodePids: [child.pid ?? 0],
      redisUrl: '',
      projectId: projectId!,
    }
    return { target, processes: [child], folder, faultLog, close }
  } catch (error) {
    await close(true)
    throw error
  }
}
