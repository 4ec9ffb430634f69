import { type ChildProcess, spawn } from 'node:child_process'
import { extname } from 'node:path'
import { fileURLToPath } from 'node:url'

const PROGRAM = fileURLToPath(new URL(`./warden-process${extname(import.meta.url)}`, import.meta.url))

/**
 * A small process that ends the others when this one is gone without a word (SIGKILL, a crash): its standard input is a pipe from here,
 * which the system closes with this process, whatever happened to it. Unlike the processes it looks after, it is never paused.
 */
export class Warden {
  readonly #process: ChildProcess
  readonly #gone: Promise<void>

  constructor() {
    const process_ = spawn(process.execPath, [...process.execArgv, PROGRAM], {
      stdio: ['pipe', 'ignore', 'inherit'],
      detached: true,
    })
    this.#process = process_
    this.#gone = new Promise((resolve) => process_.once('close', () => resolve()))
    // Without a warden everything works but its own task.
    process_.on('error', () => undefined)
    process_.stdin?.on('error', () => undefined)
  }

  /** From now on `pid` ends with this process. */
  watch(pid: number): void {
    this.#process.stdin?.write(`+${pid}\n`)
  }

  /** `pid` has ended: its number may become another's. */
  release(pid: number): void {
    this.#process.stdin?.write(`-${pid}\n`)
  }

  /** Sends it home; whatever it still watches is ended. Resolves when it is gone. */
  async close(): Promise<void> {
    this.#process.stdin?.end()
    await this.#gone
  }
}
