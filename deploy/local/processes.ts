import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createWriteStream, type WriteStream } from 'node:fs'
import { join } from 'node:path'
import { finished } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'
import { systemClock } from '../../shared/clock.ts'

/** Something on this machine keeps a part of the cluster from running. The message says what, and what would help. */
export class ClusterError extends Error {}

/** `ending`: told to end (SIGTERM or SIGKILL), and still there. */
export type ChildState = 'starting' | 'ready' | 'paused' | 'ending' | 'ended'

/** How a process ended: an exit code, or the signal that ended it. */
export interface Exit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** What a process of roomful runs: the words behind `node`, and its environment. */
export interface RoomfulRun {
  readonly words: readonly string[]
  readonly env: NodeJS.ProcessEnv
  /** Whether it takes messages of this process. */
  readonly ipc?: boolean
}

interface ChildOptions {
  readonly name: string
  readonly program: string
  /** Called before each start. */
  readonly run: () => RoomfulRun
  /** Matches its output once it serves; absent: it serves once it runs. */
  readonly ready?: RegExp
  /** File of its output. */
  readonly logFile: string
  readonly reaper: Pick<Reaper, 'watch' | 'release'>
  /** Called at the end of every run. `asked`: this process wanted it to end. */
  readonly onExit: (child: Child, exit: Exit, asked: boolean) => void
}

const START_MS = 60_000
/** Longest part of a line that is reported. */
const LINE_LENGTH = 500

/** A process that can end and be started again under the same name. */
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
  /** Its last line before it served. */
  #lastLine = ''

  constructor(options: ChildOptions) {
    this.#options = options
    this.name = options.name
    this.logFile = options.logFile
  }

  get state(): ChildState {
    return this.#state
  }

  /** The process id; undefined when there is no process. */
  get pid(): number | undefined {
    return this.#process?.pid
  }

  /** How the last run ended; undefined during a run, and before the first. */
  get exit(): Exit | undefined {
    return this.#exit
  }

  /** The match of `ready` in the last run. */
  get said(): RegExpExecArray | undefined {
    return this.#said
  }

  /** Resolves with the end of the present run, immediately when there is none. */
  get ended(): Promise<Exit> {
    return this.#ended
  }

  /** Starts it; resolves when it serves. Rejects when it ends before that or takes longer than a minute. */
  async start(): Promise<void> {
    if (this.#state !== 'ended') throw new Error(`${this.name} is running`)
    const { program, run, reaper, onExit } = this.#options
    const { words, env, ipc } = run()
    this.#state = 'starting'
    this.#exit = undefined
    this.#asked = false
    const stdio: ('ignore' | 'pipe' | 'ipc')[] = ['ignore', 'pipe', 'pipe', ...(ipc ? ['ipc' as const] : [])]
    // A process group for each: Ctrl-C at the terminal is for the cluster, which ends its processes in order.
    const child = spawn(program, words, { env, stdio, detached: true })
    this.#process = child
    const file = createWriteStream(this.logFile, { flags: 'a' })
    // A removed folder or a full disk: the process is worth more than its output.
    file.on('error', () => undefined)
    const ready = this.#listen(child, file)
    this.#ended = new Promise((resolve) => {
      // A program that cannot be run is closed with a negative code.
      child.once('error', () => undefined)
      child.once('close', async (code: number | null, signal: NodeJS.Signals | null) => {
        // Code that waits for the end reads the whole output.
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
      throw new ClusterError(`${this.name} ended before it served (${how}): ${this.#lastLine}; ${more}`)
    }
    if (this.#state === 'starting') this.#state = 'ready'
  }

  /** Sends it a message, if it runs and takes any. */
  send(message: object): void {
    if (this.#process?.connected) this.#process.send(message)
  }

  /** Kills it, paused or not (SIGKILL); resolves when it has ended. */
  async kill(): Promise<void> {
    this.#end('SIGKILL')
    await this.#ended
  }

  /** Tells it to end in order (SIGTERM). A paused process is resumed for that. */
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

  /** Ends it in order, and kills it when it has not ended after `withinMs`. */
  async endWithin(withinMs: number): Promise<void> {
    this.end()
    const cancel = systemClock.schedule(withinMs, () => void this.kill())
    await this.#ended
    cancel()
  }

  /** Suspends it (SIGSTOP), like a machine that hangs. Its connections stay open. */
  pause(): void {
    this.#process?.kill('SIGSTOP')
    this.#state = 'paused'
  }

  /** Continues a paused process (SIGCONT). */
  resume(): void {
    this.#process?.kill('SIGCONT')
    this.#state = 'ready'
  }

  /** Writes its output to its file; resolves when the output says that it serves. */
  #listen(child: ChildProcess, file: WriteStream): Promise<void> {
    const { ready } = this.#options
    return new Promise((resolve) => {
      let heard = ''
      let looking = ready !== undefined
      if (!looking) child.once('spawn', resolve)
      const hear = (chunk: Buffer): void => {
        file.write(chunk)
        if (!looking) return
        heard += chunk.toString()
        this.#lastLine = heard.trim().split('\n').at(-1)!.slice(0, LINE_LENGTH)
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

/** `exit code 1`, `SIGKILL`, or that there was nothing to run. */
export function describeExit({ code, signal }: Exit): string {
  if (signal !== null) return signal
  return code === null || code < 0 ? 'it could not be run' : `exit code ${code}`
}

interface ChildrenOptions {
  /** Folder of their logs, a file each. */
  readonly folder: string
  readonly onExit?: ChildOptions['onExit']
}

/** Processes that end with this one, however it ends: those of a cluster on this machine, for people, load tests, tests and chaos. */
export class Children {
  /** By their names, in the order in which they were added. */
  readonly all = new Map<string, Child>()
  readonly #options: ChildrenOptions
  readonly #reaper = new Reaper()

  constructor(options: ChildrenOptions) {
    this.#options = options
  }

  /** Prepares a program, in the place of the one that had this name; it does not run yet. */
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

  /** Prepares a process of roomful. `run` is called before each start of it. */
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

  /** Kills every process, without waiting for anything. */
  abandon(): void {
    for (const child of this.all.values()) void child.kill()
  }

  /** Kills every process; resolves when all have ended. */
  async close(): Promise<void> {
    await Promise.all([...this.all.values()].map((child) => child.kill()))
    await this.#reaper.close()
  }
}

/** What a process of roomful says when it serves; a node also says where its websocket and its admin port are. */
const READY = / ready: (?:websocket (?<ws_url>[^,"]+), admin (?<admin_url>[^,"\s]+)|[^"\n]+)["\n]/

const REAPER = fileURLToPath(new URL('./reaper.mjs', import.meta.url))

/**
 * A small process that kills the others when this one has gone without ending them (SIGKILL, a crash): its standard input is a pipe from
 * here, which the system closes with this process, whatever happened to it. Unlike the processes it looks after, it is never paused.
 */
class Reaper {
  readonly #process = spawn(process.execPath, [REAPER], {
    stdio: ['pipe', 'ignore', 'inherit'],
    detached: true,
  })
  readonly #gone = once(this.#process, 'close').catch(() => undefined)

  constructor() {
    // Without it everything works except its own task.
    this.#process.on('error', () => undefined)
    this.#process.stdin.on('error', () => undefined)
  }

  /** From now on `pid` ends with this process. */
  watch(pid: number): void {
    this.#process.stdin.write(`+${pid}\n`)
  }

  /** `pid` has ended: its number may become that of another process. */
  release(pid: number): void {
    this.#process.stdin.write(`-${pid}\n`)
  }

  /** Ends it, and the processes that it still watches; resolves when it is gone. */
  async close(): Promise<void> {
    this.#process.stdin.end()
    await this.#gone
  }
}
