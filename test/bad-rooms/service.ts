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
export const NODES = 3
/** Heap of a node. Small, so that code that allocates without end does not take the memory of the machine. */
const HEAP_MIB = 256

/** A running service with bad room code. */
interface BadService {
  readonly target: Target
  /** Processes that run room code. */
  readonly processes: readonly Child[]
  /** Folder of the logs. */
  readonly folder: string
  /** Path of the fault log. */
  readonly faultLog: string
  /** Ends all processes. Deletes the folder unless `keep` is true. */
  close(keep: boolean): Promise<void>
}

/** Creates the files of a service below `folder`. Returns the path of the fault log, and the environment of the service. */
function prepare(folder: string) {
  const faultLog = join(folder, 'faults.jsonl')
  const fifo = join(folder, 'fifo')
  execFileSync('mkfifo', [fifo])
  const env = {
    FAULT_LOG: faultLog,
    FIFO: fifo,
    NODE_OPTIONS: `--max-old-space-size=${HEAP_MIB}`,
    // The limit on new rooms would reject most faults before the protection under test.
    NEW_ROOMS_PER_MINUTE: '0',
    // Errors of room code are warnings, and only a line that is written reads them.
    LOG_LEVEL: 'warn',
  }
  return { faultLog, env }
}

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
    // roomful dev behaves differently in an npm script.
    npm_lifecycle_event: undefined,
    ROOMS_DIR: ROOMS,
    WS_PORT: String(websocket),
    ADMIN_PORT: String(admin),
    CONTROL_PORT: String(control),
    CONTROL_API_TOKENS: operatorToken,
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
      keyPrefix: '',
      projectId: projectId!,
    }
    return { target, processes: [child], folder, faultLog, close }
  } catch (error) {
    await close(true)
    throw error
  }
}

/** Pause before an ended process is restarted, as in the systemd units. */
const RESTART_MS = 1000
const LOOK_MS = 500
/** Timeout of `/readyz`. */
const READY_MS = 2000
/** Time limit until all restarted processes are ready. */
const RECOVERY_MS = 20_000

/** Unexpected end of a process. */
export interface ProcessEnd {
  /** Milliseconds since 1970. */
  readonly at: number
  readonly node: string
  readonly pid: number
  /** `exit code 1`, or a signal. */
  readonly how: string
}

/** Restarts ended processes, counts their ends, and checks twice a second whether all of them are ready. */
export class Supervisor {
  readonly ends: ProcessEnd[] = []
  readonly #adminUrls: readonly string[]
  readonly #looks: { readonly at: number; readonly live: boolean }[] = []
  readonly #restart: boolean
  readonly #mostEnds: number
  readonly #onEnd: (end: ProcessEnd) => void
  readonly #over = new AbortController()

  constructor(parts: {
    readonly processes: readonly Child[]
    readonly adminUrls: readonly string[]
    /** False: ended processes are not restarted. */
    readonly restart: boolean
    /** Allowed number of ends. */
    readonly mostEnds: number
    readonly onEnd: (end: ProcessEnd) => void
  }) {
    this.#adminUrls = parts.adminUrls
    this.#restart = parts.restart
    this.#mostEnds = parts.mostEnds
    this.#onEnd = parts.onEnd
    for (const child of parts.processes) void this.#keep(child)
    void this.#look()
  }

  /**
   * Share of the checks after the last allowed end in which all processes were ready, from 0 to 1. The checks count from the moment when all are
   * ready again, at most 20 s after that end. With fewer ends, the last one counts instead.
   */
  get liveAfterwards(): number {
    const from = this.ends[this.#mostEnds - 1]?.at ?? this.ends.at(-1)?.at ?? 0
    const later = this.#looks.filter(({ at }) => at > from)
    const first = later.findIndex(({ at, live }) => live || at > from + RECOVERY_MS)
    const afterwards = first < 0 ? [] : later.slice(first)
    return afterwards.filter(({ live }) => live).length / Math.max(1, afterwards.length)
  }

  /** Waits until all processes are ready, at most 20 s. Then stops restarting them. */
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
      // If the process ends before it is ready, the next `child.ended` reports it.
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
