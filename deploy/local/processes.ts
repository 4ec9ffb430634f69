import { type ChildProcess, spawn } from 'node:child_process'
import { createWriteStream } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Clock } from '../../shared/clock.ts'

/** Something of this machine keeps a part of the cluster from running; the message says what, and what to do about it. */
export class ClusterError extends Error {}

/** `ending`: told to end in order, and still at it. */
type ChildState = 'starting' | 'ready' | 'paused' | 'ending' | 'ended'

/** How a process ended: an exit code, or the signal that ended it. */
export interface Exit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

interface ChildOptions {
  readonly name: string
  readonly program: string
  readonly args: readonly string[]
  readonly env: NodeJS.ProcessEnv
  /** What it prints once it serves; absent: it serves once it runs. */
  readonly ready?: RegExp
  /** Whether it takes messages of this process. */
  readonly ipc?: boolean
  /** The file that takes all it prints. */
  readonly logFile: string
  readonly reaper: Pick<Reaper, 'watch' | 'release'>
  readonly clock: Clock
  /** Called at the end of every run. `asked`: someone here wanted it. */
  readonly onExit: (child: Child, exit: Exit, asked: boolean) => void
}

const START_MS = 60_000
/** So much of a line is told. */
const LINE_LENGTH = 500

/** One process of the cluster, which can end and be started again under the same name. */
export class Child {
  readonly #options: ChildOptions
  #state: ChildState = 'ended'
  #process: ChildProcess | undefined
  #ended: Promise<Exit> = Promise.resolve({ code: null, signal: null })
  #exit: Exit | undefined
  #asked = false
  #said: RegExpExecArray | undefined
  /** What it printed last before it served. */
  #lastLine = ''

  constructor(options: ChildOptions) {
    this.#options = options
  }

  get name(): string {
    return this.#options.name
  }

  get logFile(): string {
    return this.#options.logFile
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
    const { program, args, env, ipc, reaper, onExit } = this.#options
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
        if (child.pid !== undefined) reaper.release(child.pid)
        this.#process = undefined
        this.#state = 'ended'
        this.#exit = { code, signal }
        resolve(this.#exit)
        onExit(this, this.#exit, this.#asked)
      })
    })
    if (child.pid !== undefined) reaper.watch(child.pid)
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

  /** Ends it in order, and at once when it has not ended after `withinMs`. */
  async endWithin(withinMs: number): Promise<void> {
    this.end()
    const cancel = this.#options.clock.schedule(withinMs, () => void this.kill())
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
    const { logFile, ready } = this.#options
    const file = createWriteStream(logFile, { flags: 'a' })
    // A folder that someone has cleared away, or a full disk: the process is worth more than what it prints.
    file.on('error', () => undefined)
    return new Promise((resolve) => {
      let heard = ''
      let looking = ready !== undefined
      if (!looking) child.once('spawn', resolve)
      const hear = (chunk: Buffer): void => {
        file.write(chunk)
        if (!looking) return
        this.#lastLine = chunk.toString().trim().split('\n').at(-1)!.slice(0, LINE_LENGTH)
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
        `${this.name} did not serve within ${START_MS / 1000} s; ${this.logFile} says more`,
      )
    }
    if (outcome !== undefined)
      throw new ClusterError(
        `${this.name} ended before it served (${describeExit(outcome)}): ${this.#lastLine}; ${this.logFile} says more`,
      )
    if (this.#state === 'starting') this.#state = 'ready'
  }
}

/** `exit code 1`, `SIGKILL`, or that there was nothing to run. */
export function describeExit({ code, signal }: Exit): string {
  if (signal !== null) return signal
  return code === null || code < 0 ? 'it could not be run' : `exit code ${code}`
}

interface ChildrenOptions {
  /** Takes what they print, a file each. */
  readonly folder: string
  readonly clock: Clock
  readonly onExit?: ChildOptions['onExit']
}

/** Processes that end with this one, however that ends: those of a cluster on this machine, for people, load tests, tests and chaos. */
export class Children {
  /** By their names, in the order in which they were added. */
  readonly all = new Map<string, Child>()
  readonly #options: ChildrenOptions
  readonly #reaper = new Reaper()

  constructor(options: ChildrenOptions) {
    this.#options = options
  }

  get folder(): string {
    return this.#options.folder
  }

  /** Prepares a process; it does not run yet. One that had this name is forgotten. */
  add(
    name: string,
    how: Pick<ChildOptions, 'program' | 'args' | 'env' | 'ready' | 'ipc'>,
    onExit = this.#options.onExit ?? (() => undefined),
  ): Child {
    const { folder, clock } = this.#options
    const logFile = join(folder, `${name}.log`)
    const child = new Child({ ...how, name, logFile, reaper: this.#reaper, clock, onExit })
    this.all.set(name, child)
    return child
  }

  /** Prepares a process of roomful: the words behind `node`, which make it say where it is when it is ready. */
  addRoomful(
    name: string,
    words: readonly string[],
    env: NodeJS.ProcessEnv,
    more: { readonly ipc?: boolean; readonly onExit?: ChildOptions['onExit'] } = {},
  ): Child {
    const how = { program: process.execPath, args: words, env, ready: READY, ipc: more.ipc ?? false }
    return this.add(name, how, more.onExit)
  }

  /** Ends every process at once, without waiting for anything. */
  abandon(): void {
    for (const child of this.all.values()) void child.kill()
  }

  /** Ends every process at once; resolves when all are gone. */
  async close(): Promise<void> {
    await Promise.all([...this.all.values()].map((child) => child.kill()))
    await this.#reaper.close()
  }
}

/** What a process of roomful says when it serves; a node also where its websocket and its admin port are. */
const READY = / ready: (?:websocket (?<ws_url>[^,"]+), admin (?<admin_url>[^,"\s]+)|[^"\n]+)["\n]/

const PROGRAM = fileURLToPath(new URL('./reaper.mjs', import.meta.url))

/**
 * A small process that kills the others when this one is gone without having ended them (SIGKILL, a crash): its standard input is a pipe from here,
 * which the system closes with this process, whatever happened to it. Unlike the processes it looks after, it is never paused.
 */
class Reaper {
  readonly #process: ChildProcess
  readonly #gone: Promise<void>

  constructor() {
    const process_ = spawn(process.execPath, [PROGRAM], {
      stdio: ['pipe', 'ignore', 'inherit'],
      detached: true,
    })
    this.#process = process_
    this.#gone = new Promise((resolve) => process_.once('close', () => resolve()))
    // Without it everything works but its own task.
    process_.on('error', () => undefined)
    process_.stdin?.on('error', () => undefined)
  }

  /** From now on `pid` ends with this process. */
  watch(pid: number): void {
    this.#process.stdin?.write(`+${pid}\n`)
  }

  /** `pid` has ended: its number may become that of another process. */
  release(pid: number): void {
    this.#process.stdin?.write(`-${pid}\n`)
  }

  /** Ends it, and whatever it still watches. Resolves when it is gone. */
  async close(): Promise<void> {
    this.#process.stdin?.end()
    await this.#gone
  }
}
