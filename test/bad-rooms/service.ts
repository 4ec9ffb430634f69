import { execFileSync } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort, roomfulProgram } from '../../deploy/local/machine.ts'
import { type Child, Children, describeExit } from '../../deploy/local/processes.ts'
import { randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import { call, startService, type Target } from '../attack/attack.ts'

const HOST = '127.0.0.1'
const ROOMS = `${import.meta.dirname}/rooms`
const NODES = 3
/** Heap of a node. Small, so that code that allocates without end does not take the memory of the machine. */
const HEAP_MIB = 256

/** A running service whose room code is bad. */
interface BadService {
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

/** Pause before an ended process is started again, as in the systemd units. */
const RESTART_MS = 1000
const LOOK_MS = 500
/** A node that has not answered `/readyz` after this is not live. */
const READY_MS = 2000
/** Time that ended processes have until all of them are ready. */
const RECOVERY_MS = 20_000

/** The end of one process, which no one asked for. */
export interface ProcessEnd {
  /** Milliseconds since 1970. */
  readonly at: number
  readonly node: string
  readonly pid: number
  /** `exit code 1`, or a signal. */
  readonly how: string
}

/** Starts ended processes again, counts their ends, and looks whether all of them are ready. */
export class Supervisor {
  readonly ends: ProcessEnd[] = []
  readonly #adminUrls: readonly string[]
  readonly #looks: { readonly at: number; readonly live: boolean }[] = []
  readonly #restart: boolean
  readonly #onEnd: (end: ProcessEnd) => void
  readonly #over = new AbortController()

  constructor(parts: {
    readonly processes: readonly Child[]
    readonly adminUrls: readonly string[]
    /** False: an ended process stays ended. */
    readonly restart: boolean
    readonly onEnd: (end: ProcessEnd) => void
  }) {
    this.#adminUrls = parts.adminUrls
    this.#restart = parts.restart
    this.#onEnd = parts.onEnd
    for (const child of parts.processes) void this.#keep(child)
    void this.#look()
  }

  /**
   * The share of the looks after the second end that found all processes ready, from 0 to 1. They begin when all are ready again, at most
   * 20 s after that end. With fewer ends, the last one counts instead.
   */
  get liveAfterwards(): number {
    const from = this.ends[1]?.at ?? this.ends.at(-1)?.at ?? 0
    const later = this.#looks.filter(({ at }) => at > from)
    const first = later.findIndex(({ at, live }) => live || at > from + RECOVERY_MS)
    const afterwards = first < 0 ? [] : later.slice(first)
    return afterwards.filter(({ live }) => live).length / Math.max(1, afterwards.length)
  }

  /** Waits until all processes are ready, at most 20 s, and stops to start them again. */
  async stop(): Promise<void> {
    const deadline = Date.now() + RECOVERY_MS
    while (this.#restart && !(await this.#isLive()) && Date.now() < deadline) await sleep(LOOK_MS)
    this.#looks.push({ at: Date.now(), live: await this.#isLive() })
    this.#over.abort()
  }

  async #keep(child: Child): Promise<void> {
    let { pid = 0 } = child
    for (;;) {
      const exit = await child.ended
      if (this.#over.signal.aborted) return
      const end = { at: Date.now(), node: child.name, pid, how: describeExit(exit) }
      this.ends.push(end)
      this.#onEnd(end)
      if (!this.#restart) return
      await sleep(RESTART_MS)
      if (this.#over.signal.aborted) return
      const starting = child.start()
      pid = child.pid ?? 0
      // One that ends before it is ready has ended, as the loop sees.
      await starting.catch(() => undefined)
    }
  }

  async #look(): Promise<void> {
    while (!this.#over.signal.aborted) {
      const at = Date.now()
      this.#looks.push({ at, live: await this.#isLive() })
      await sleep(LOOK_MS)
    }
  }

  async #isLive(): Promise<boolean> {
    const ready = await Promise.all(
      this.#adminUrls.map((url) =>
        fetch(`${url}/readyz`, { signal: AbortSignal.timeout(READY_MS) }).then(
          ({ status }) => status === 200,
          () => false,
        ),
      ),
    )
    return ready.every(Boolean)
  }
}
