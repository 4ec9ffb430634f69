import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createWriteStream, type WriteStream } from 'node:fs'
import { join } from 'node:path'
import { finished } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'
import { systemClock } from '../../shared/clock.ts'

/** Error of this machine that prevents a part of the cluster from running. The message says what would help. */
export class ClusterError extends Error {}

/** `ending`: it was asked or killed to end, and still exists. */
export type ChildState = 'starting' | 'ready' | 'paused' | 'ending' | 'ended'

/** End of a process: an exit code, or a signal. */
export interface Exit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** Command of a roomful process: the words after `node`, and the environment. */
interface RoomfulRun {
  readonly words: readonly string[]
  readonly env: NodeJS.ProcessEnv
  /** True: it accepts messages of this process. */
  readonly ipc?: boolean
}

interface ChildOptions {
  readonly name: string
  readonly program: string
  /** Called before each start. */
  readonly run: () => RoomfulRun
  /** Matches its output when it serves. Absent: it serves as soon as it runs. */
  readonly ready?: RegExp
  /** File for its output. */
  readonly logFile: string
  readonly reaper: Pick<Reaper, 'watch' | 'release'>
  /** Called at the end of every run. `asked`: this process wanted it to end. */
  readonly onExit: (child: Child, exit: Exit, asked: boolean) => void
}

const START_MS = 60_000
/** Maximum length of a reported line. */
const LINE_LENGTH = 500

/** A process that can be started again under the same name after its end. */
export class Child {
  readonly name: string
  readonly logFile: string
  readonly #options: ChildOptions
  #state: ChildState = 'ended'
  #process: ChildProcess | undefined
  #ended: Promise<Exit> = Promise.resolve({ code: null, signal: null })
  #exit: Exit | undefined
  #asked = false
  #said: RegExpExecArray | undefined
  /** Latest part of its output. */
  #output: Buffer | undefined

  constructor(options: ChildOptions) {
    this.#options = options
    this.name = options.name
    this.logFile = options.logFile
  }

  get state(): ChildState {
    return this.#state
  }

  /** Process id. Undefined: there is no process. */
  get pid(): number | undefined {
    return this.#process?.pid
  }

  /** End of the last run. Undefined during a run, and before the first. */
  get exit(): Exit | undefined {
    return this.#exit
  }

  /** Match of `ready` in the last run. */
  get said(): RegExpExecArray | undefined {
    return this.#said
  }

  /** Resolves with the end of the current run, immediately if there is none. */
  get ended(): Promise<Exit> {
    return this.#ended
  }

  /** Starts it. Resolves when it serves. Rejects if it ends before that or takes longer than a minute. */
  async start(): Promise<void> {
    if (this.#state !== 'ended') throw new Error(`${this.name} is running`)
    const { program, run, reaper, onExit } = this.#options
    const { words, env, ipc } = run()
    this.#state = 'starting'
    this.#exit = undefined
    this.#asked = false
    const stdio: ('ignore' | 'pipe' | 'ipc')[] = ['ignore', 'pipe', 'pipe', ...(ipc ? ['ipc' as const] : [])]
    // A separate process group: Ctrl-C at the terminal is for the cluster, which ends its processes in order.
    const child = spawn(program, words, { env, stdio, detached: true })
    this.#process = child
    const file = createWriteStream(this.logFile, { flags: 'a' })
    // A removed folder or a full disk: the process is more important than its output.
    file.on('error', () => undefined)
    const ready = this.#listen(child, file)
    this.#ended = new Promise((resolve) => {
      // If the program cannot be run, `close` follows with a negative code.
      child.once('error', () => undefined)
      child.once('close', async (code: number | null, signal: NodeJS.Signals | null) => {
        // Code that awaits the end reads the whole output.
        await finished(file.end()).catch(() => undefined)
        if (child.pid !== undefined) reaper.release(child.pid)
        this.#process = undefined
        this.#state = 'ended'
        this.#exit = { code, signal }
        resolve(this.#exit)
        onExit(this, this.#exit, this.#asked)
      })
    })
    if (child.pid !== undefined) reaper.watch(child.pid)
    let cancel = (): void => {}
    const late = new Promise<'late'>((resolve) => {
      cancel = systemClock.schedule(START_MS, () => resolve('late'))
    })
    const outcome = await Promise.race([ready, this.#ended, late])
    cancel()
    const more = `${this.logFile} says more`
    if (outcome === 'late') {
      await this.kill()
      throw new ClusterError(`${this.name} did not serve within ${START_MS / 1000} s; ${more}`)
    }
    if (outcome !== undefined) {
      const how = describeExit(outcome)
      throw new ClusterError(`${this.name} ended before it served (${how}): ${this.lastLine}; ${more}`)
    }
    if (this.#state === 'starting') this.#state = 'ready'
  }

  /** Sends it a message, if it runs and accepts messages. */
  send(message: object): void {
    if (this.#process?.connected) this.#process.send(message)
  }

  /** Kills it (SIGKILL), also if it is paused. Resolves when it has ended. */
  async kill(): Promise<void> {
    this.#end('SIGKILL')
    await this.#ended
  }

  /** Asks it to end in order (SIGTERM). A paused process is resumed for that. */
  end(): void {
    if (this.#state === 'paused') this.#process?.kill('SIGCONT')
    this.#end('SIGTERM')
  }

  #end(signal: NodeJS.Signals): void {
    if (!this.#process) return
    this.#asked = true
    this.#state = 'ending'
    this.#process.kill(signal)
  }

  /** Ends it in order, and kills it if it has not ended after `withinMs`. */
  async endWithin(withinMs: number): Promise<void> {
    this.end()
    const cancel = systemClock.schedule(withinMs, () => void this.kill())
    await this.#ended
    cancel()
  }

  /** Suspends it (SIGSTOP), like a hanging machine. Its connections stay open. */
  pause(): void {
    this.#process?.kill('SIGSTOP')
    this.#state = 'paused'
  }

  /** Continues a paused process (SIGCONT). */
  resume(): void {
    this.#process?.kill('SIGCONT')
    this.#state = 'ready'
  }

  /** Last line of its output, shortened. */
  get lastLine(): string {
    return String(this.#output ?? '')
      .trim()
      .split('\n')
      .at(-1)!
      .slice(0, LINE_LENGTH)
  }

  /** Writes its output to its file. Resolves when the output shows that it serves. */
  #listen(child: ChildProcess, file: WriteStream): Promise<void> {
    const { ready } = this.#options
    return new Promise((resolve) => {
      let heard = ''
      let looking = ready !== undefined
      if (!looking) child.once('spawn', resolve)
      const hear = (chunk: Buffer): void => {
        file.write(chunk)
        this.#output = chunk
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
    })
  }
}

/** Returns `exit code 1`, `SIGKILL`, or that the program could not be run. */
export function describeExit({ code, signal }: Exit): string {
  if (signal !== null) return signal
  return code === null || code < 0 ? 'it could not be run' : `exit code ${code}`
}

interface ChildrenOptions {
  /** Folder of the log files, one for each process. */
  readonly folder: string
  readonly onExit?: ChildOptions['onExit']
}

/** Processes that end with this one in any case: those of a cluster on this machine, for people, load tests, tests and chaos. */
export class Children {
  /** Processes by name, in the order in which they were added. */
  readonly all = new Map<string, Child>()
  readonly #options: ChildrenOptions
  readonly #reaper = new Reaper()

  constructor(options: ChildrenOptions) {
    this.#options = options
  }

  /** Adds a program, and replaces the one with the same name. It does not run yet. */
  add(
    name: string,
    how: {
      readonly program: string
      readonly args: readonly string[]
      readonly env: NodeJS.ProcessEnv
      readonly ready?: RegExp
    },
  ): Child {
    const { program, args: words, env, ready } = how
    return this.#add({ name, program, run: () => ({ words, env }), ...(ready && { ready }) })
  }

  /** Adds a process of roomful. `run` is called before each start. */
  addRoomful(name: string, run: () => RoomfulRun): Child {
    return this.#add({ name, program: process.execPath, run, ready: READY })
  }

  #add(how: Pick<ChildOptions, 'name' | 'program' | 'run' | 'ready'>): Child {
    const { folder, onExit = () => undefined } = this.#options
    const child = new Child({
      ...how,
      logFile: join(folder, `${how.name}.log`),
      reaper: this.#reaper,
      onExit,
    })
    this.all.set(how.name, child)
    return child
  }

  /** Kills every process without waiting. */
  abandon(): void {
    for (const child of this.all.values()) void child.kill()
  }

  /** Kills every process. Resolves when all have ended. */
  async close(): Promise<void> {
    await Promise.all([...this.all.values()].map((child) => child.kill()))
    await this.#reaper.close()
  }
}

/** Output of a serving roomful process. That of a node has the addresses of its websocket and its admin port. */
const READY = / ready: (?:websocket (?<ws_url>[^,"]+), admin (?<admin_url>[^,"\s]+)|[^"\n]+)["\n]/

const REAPER = fileURLToPath(new URL('./reaper.mjs', import.meta.url))

/**
 * A small process that kills the others if this one has ended without ending them (SIGKILL, a crash). Its standard input is a pipe from
 * this process, which the system closes in any case. Unlike the watched processes, it is never paused.
 */
class Reaper {
  readonly #process = spawn(process.execPath, [REAPER], {
    stdio: ['pipe', 'ignore', 'inherit'],
    detached: true,
  })
  readonly #gone = once(this.#process, 'close').catch(() => undefined)

  constructor() {
    // Without it everything works except this clean-up.
    this.#process.on('error', () => undefined)
    this.#process.stdin.on('error', () => undefined)
  }

  /** Adds `pid`: it is killed when this process ends. */
  watch(pid: number): void {
    this.#process.stdin.write(`+${pid}\n`)
  }

  /** Removes `pid`, which has ended: its number may become that of another process. */
  release(pid: number): void {
    this.#process.stdin.write(`-${pid}\n`)
  }

  /** Ends it, and with it the processes that it still watches. Resolves when it has ended. */
  async close(): Promise<void> {
    this.#process.stdin.end()
    await this.#gone
  }
}
