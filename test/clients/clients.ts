import { fileURLToPath } from 'node:url'
import { foundFor, luaPath, pythonPath } from '../support/debian-package.ts'
import { type Program, startCommand } from '../support/program.ts'

/** Programs of a client, as words after its interpreter. They run in its folder. */
interface Programs {
  /** Runs all vectors and scenarios of the protocol. The exit code is 0 if they pass. */
  readonly tests: readonly string[]
  /** Plays behind the conformance proxy until its sessions end. */
  readonly bot: readonly string[]
  /** Counts together with other players. Its last line is what it has seen, as JSON. */
  readonly count: readonly string[]
}

/** A client of the folder `clients/`. */
export class TestedClient {
  readonly name: string
  /** False: its language is missing here. */
  readonly runs: boolean
  readonly #programs: Programs
  readonly #folder: string
  readonly #interpreter: string

  /** `find` returns the interpreter, or throws an error that says what is missing. */
  constructor(name: string, folder: string, find: () => string, programs: Programs) {
    this.name = name
    this.#programs = programs
    this.#folder = fileURLToPath(new URL(`../../clients/${folder}`, import.meta.url))
    const interpreter = foundFor(`the client in ${name}`, find)
    this.runs = interpreter !== undefined
    this.#interpreter = interpreter ?? ''
  }

  /** Starts one of its programs. */
  start(program: keyof Programs, env: Record<string, string> = {}): Program {
    return startCommand(this.#interpreter, [...this.#programs[program]], env, this.#folder)
  }

  /** Returns a command for the shell that runs one of its programs. */
  command(program: keyof Programs): string {
    return `cd '${this.#folder}' && exec '${this.#interpreter}' ${this.#programs[program].join(' ')}`
  }
}

/** All clients other than the SDK. Writes to stderr which of them cannot run here. */
export const testedClients = (): TestedClient[] => [
  new TestedClient('Python', 'python', pythonPath, {
    tests: ['-m', 'unittest', 'discover', '-s', 'tests'],
    bot: ['bot.py'],
    count: ['count.py'],
  }),
  new TestedClient('Lua', 'lua', luaPath, { tests: ['test.lua'], bot: ['bot.lua'], count: ['count.lua'] }),
]
