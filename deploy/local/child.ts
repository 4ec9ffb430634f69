import { type ChildProcess, spawn } from 'node:child_process'
import { createWriteStream } from 'node:fs'
import type { Clock } from '../../shared/clock.ts'
import { ClusterError } from './cluster-error.ts'
import type { Warden } from './warden.ts'

/** `ending`: told to end in order, and still at it. */
export type ChildState = 'starting' | 'ready' | 'paused' | 'ending' | 'ended'

/** How a process ended: an exit code, or the signal that ended it. */
export interface Exit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

export interface ChildOptions {
  readonly name: string
  readonly program: string
  readonly args: readonly string[]
  readonly env: NodeJS.ProcessEnv
  /** What it prints once it serves; absent: it serves once it runs. */
  readonly ready?: RegExp
  /** Whether it takes messages of this process. */
  readonly ipc?: boolean
  /** The file that takes all it prints. */
  readonly log_file: string
  readonly warden: Pick<Warden, 'watch' | 'release'>
  readonly clock: Clock
  /** Called at the end of every run. `asked`: somebody here wanted it. */
  readonly on_exit: (child: Child, exit: Exit, asked: boolean) => void
}

const START_MS = 60_000

/** One process of the cluster, which can end and be started again under the same name. */
export class Child {
  readonly #options: ChildOptions
  #state: ChildState = 'ended'
  #process: ChildProcess | undefined
  #ended: Promise<Exit> = Promise.resolve({ code: null, signal: null })
  #exit: Exit | undefined
  #asked = false
  #said: RegExpExecArray | undefined

  constructor(options: ChildOptions) {
    this.#options = options
  }

  get name(): string {
    return this.#options.name
  }

  get log_file(): string {
    return this.#options.log_file
  }

  get state(): ChildState {
    return this.#state
  }

  /** The process id; undefined when there is no process. */
  get pid(): number | undefined {
    return this.#process?.pid
  }

  /** How the last run ended; undefined while there is one, and before the first. */
  get exit(): Exit | undefined {
    return this.#exit
  }

  /** What it printed when it was ready, in the last run. */
  get said(): RegExpExecArray | undefined {
    return this.#said
  }

  /** Resolves with the end of the present run, at once when there is none. */
  get ended(): Promise<Exit> {
    return this.#ended
  }

  /** Starts it; resolves when it serves. Rejects when it ends before that or takes longer than a minute. */
  async start(): Promise<void> {
    if (this.#state !== 'ended') throw new Error(`${this.name} is running`)
    const { program, args, env, ipc, warden, on_exit } = this.#options
    this.#state = 'starting'
    this.#exit = undefined
    this.#asked = false
    // A group of its own: Ctrl-C at the terminal is for the cluster, which ends its processes in order.
    const stdio: ('ignore' | 'pipe' | 'ipc')[] = ['ignore', 'pipe', 'pipe', ...(ipc ? ['ipc' as const] : [])]
    const child = spawn(program, args, { env, stdio, detached: true })
    this.#process = child
    const ready = this.#listen(child)
    this.#ended = new Promise((resolve) => {
      // A program that cannot be run is closed with a negative code.
      child.once('error', () => undefined)
      child.once('close', (code: number | null, signal: NodeJS.Signals | null) => {
        if (child.pid !== undefined) warden.release(child.pid)
        this.#process = undefined
        this.#state = 'ended'
        this.#exit = { code, signal }
        resolve(this.#exit)
        on_exit(this, this.#exit, this.#asked)
      })
    })
    if (child.pid !== undefined) warden.watch(child.pid)
    await this.#until(ready)
  }

  /** Sends it a message, if it runs and takes any. */
  send(message: object): void {
    if (this.#process?.connected) this.#process.send(message)
  }

  /** Ends it at once, paused or not; resolves when it is gone. */
  async kill(): Promise<void> {
    this.#asked = true
    if (this.#process) this.#state = 'ending'
    this.#process?.kill('SIGKILL')
    await this.#ended
  }

  /** Tells it to end in order (SIGTERM). A paused one goes on for that. */
  end(): void {
    if (!this.#process) return
    this.#asked = true
    if (this.#state === 'paused') this.#process.kill('SIGCONT')
    this.#state = 'ending'
    this.#process.kill('SIGTERM')
  }

  /** Ends it in order, and at once when it has not ended after `within_ms`. */
  async endWithin(within_ms: number): Promise<void> {
    this.end()
    const cancel = this.#options.clock.schedule(within_ms, () => void this.kill())
    await this.#ended
    cancel()
  }

  /** Stops it where it is, as a machine that hangs would; no effect on the state of anything it holds. */
  pause(): void {
    this.#process?.kill('SIGSTOP')
    this.#state = 'paused'
  }

  /** Lets a paused one go on. */
  resume(): void {
    this.#process?.kill('SIGCONT')
    this.#state = 'ready'
  }

  /** Sends all it prints to its file; resolves when that says it serves. */
  #listen(child: ChildProcess): Promise<void> {
    const { log_file, ready } = this.#options
    const file = createWriteStream(log_file, { flags: 'a' })
    // A folder that somebody has cleared away, or a full disk: the process is worth more than what it prints.
    file.on('error', () => undefined)
    return new Promise((resolve) => {
      let heard = ''
      let looking = ready !== undefined
      if (!looking) child.once('spawn', resolve)
      const hear = (chunk: Buffer): void => {
        file.write(chunk)
        if (!looking) return
        heard += chunk.toString()
        const said = ready?.exec(heard)
        if (!said) return
        this.#said = said
        looking = false
        heard = ''
        resolve()
      }
      child.stdout?.on('data', hear)
      child.stderr?.on('data', hear)
      child.once('close', () => file.end())
    })
  }

  async #until(ready: Promise<void>): Promise<void> {
    let cancel = (): void => {}
    const late = new Promise<'late'>((resolve) => {
      cancel = this.#options.clock.schedule(START_MS, () => resolve('late'))
    })
    const outcome = await Promise.race([ready, this.#ended, late])
    cancel()
    if (outcome === 'late') {
      await this.kill()
      throw new ClusterError(
        `${this.name} did not serve within ${START_MS / 1000} s; ${this.log_file} says more`,
      )
    }
    if (outcome !== undefined)
      throw new ClusterError(
        `${this.name} ended before it served (${describeExit(outcome)}); ${this.log_file} says why`,
      )
    if (this.#state === 'starting') this.#state = 'ready'
  }
}

/** `exit code 1`, `SIGKILL`, or that there was nothing to run. */
export function describeExit({ code, signal }: Exit): string {
  if (signal !== null) return signal
  return code === null || code < 0 ? 'it could not be run' : `exit code ${code}`
}
