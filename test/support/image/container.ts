import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const run = promisify(execFile)
const ENTER = fileURLToPath(new URL('enter-root.sh', import.meta.url))
const UNSHARE = ['--mount', '--pid', '--fork', '--kill-child']

/** Why containers cannot be made by hand on this machine; undefined when they can. */
export function whyNoContainers(): string | undefined {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'this is not Linux as root'
  const probe = spawnSync('unshare', [
    ...UNSHARE,
    'sh',
    '-c',
    'mount --make-rprivate / && mount -t tmpfs tmpfs /mnt',
  ])
  return probe.status === 0 ? undefined : 'this machine allows no namespaces or mounts'
}

interface ContainerOptions {
  /** The folder that is its root. */
  readonly root: string
  readonly writable: boolean
  /** A folder of this machine that is there at the same path, writable. */
  readonly shared?: string
  /** `uid:gid`. */
  readonly user: string
  readonly workdir: string
  readonly env: Readonly<Record<string, string>>
  readonly words: readonly string[]
}

/** Where programs are found inside: Node first, wherever this machine has it below /usr. */
const PATH = [
  dirname(process.execPath),
  '/usr/local/sbin',
  '/usr/local/bin',
  '/usr/sbin',
  '/usr/bin',
  '/sbin',
  '/bin',
].join(':')

/** A process that is number 1 in a root of its own, on the network of this machine. */
export class Container {
  readonly #outer: ChildProcess
  readonly #options: ContainerOptions
  #output = ''
  readonly #waiting = new Set<() => void>()
  /** Its exit code; null when a signal ended it. */
  readonly ended: Promise<number | null>

  constructor(options: ContainerOptions) {
    this.#options = options
    const { root, writable, shared = '-', user, workdir, env, words } = options
    const enter = ['sh', ENTER, root, writable ? 'rw' : 'ro', shared, user, workdir, ...words]
    this.#outer = spawn('unshare', [...UNSHARE, ...enter], { env: { PATH, ...env } })
    this.ended = new Promise((resolve) => this.#outer.once('close', (code) => resolve(code)))
    for (const stream of [this.#outer.stdout!, this.#outer.stderr!])
      stream.on('data', (chunk: Buffer) => {
        this.#output += chunk
        for (const look of this.#waiting) look()
      })
  }

  /** Everything it has said. */
  output(): string {
    return this.#output
  }

  /** Resolves when its output has matched; rejects when it ends before. */
  said(pattern: RegExp): Promise<RegExpMatchArray> {
    return new Promise((resolve, reject) => {
      const look = (): void => {
        const match = this.#output.match(pattern)
        if (match) resolve(match)
      }
      this.#waiting.add(look)
      look()
      void this.ended.then((code) =>
        reject(new Error(`it ended with ${code}, without ${pattern}: ${this.#output}`)),
      )
    })
  }

  /** Its process 1, by the number it has outside. */
  #pid(): number {
    const { pid } = this.#outer
    return Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim())
  }

  /** Sends process 1 a signal, as `docker stop` does. */
  signal(signal: NodeJS.Signals): void {
    process.kill(this.#pid(), signal)
  }

  /** What /proc says of process 1: `Uid`, `CapEff`, `NoNewPrivs` and the like. */
  status(field: string): string {
    const line = readFileSync(`/proc/${this.#pid()}/status`, 'utf8').match(
      new RegExp(`^${field}:\\s*(.*)$`, 'm'),
    )
    return line?.[1] ?? ''
  }

  /** Runs a command inside, as `docker exec` does, with the same user and environment. */
  async exec(words: readonly string[]): Promise<{ code: number; output: string }> {
    const { user, env } = this.#options
    const [uid, gid] = user.split(':')
    const enter = ['--target', String(this.#pid()), '--mount', '--pid', '--root', '--wd']
    const become = ['setpriv', '--reuid', uid!, '--regid', gid!, '--clear-groups', ...words]
    try {
      const { stdout, stderr } = await run('nsenter', [...enter, ...become], { env: { PATH, ...env } })
      return { code: 0, output: stdout + stderr }
    } catch (error) {
      const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string }
      return { code, output: stdout + stderr }
    }
  }

  /** Ends it at once, if it has not ended. */
  kill(): void {
    this.#outer.kill('SIGKILL')
  }
}
