import { type ChildProcess, spawn } from 'node:child_process'
import { createWriteStream, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readStoreLines, type StoreHistory } from '../node/recording-store.ts'
import { machineNow } from '../now.ts'

const MAIN = fileURLToPath(new URL('../node/main.ts', import.meta.url))
const START_WITHIN_MS = 30_000

export interface NodeProcessOptions {
  /** Its name, of this one life. */
  readonly node: string
  /** Where its log and its store history go. */
  readonly folder: string
  readonly unfenced: boolean
  readonly env: Readonly<Record<string, string>>
}

/** One life of a node: a process of its own, with what it did to the store. */
export class NodeProcess {
  readonly node: string
  ws_url = ''
  admin_url = ''
  readonly #child: ChildProcess
  readonly #history: string
  #ended_at: number | undefined

  private constructor({ node, folder, unfenced, env }: NodeProcessOptions) {
    this.node = node
    this.#history = join(folder, `${node}.store`)
    this.#child = spawn(
      process.execPath,
      ['--import', 'tsx', MAIN, this.#history, ...(unfenced ? ['--unfenced'] : [])],
      {
        env: {
          PATH: process.env.PATH,
          HOME: process.env.HOME,
          TMPDIR: process.env.TMPDIR,
          ...env,
          NODE_ID: node,
        },
        stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      },
    )
    const log = createWriteStream(join(folder, `${node}.log`))
    this.#child.stdout?.on('data', (chunk) => log.write(chunk))
    this.#child.stderr?.on('data', (chunk) => log.write(chunk))
    this.#child.on('error', () => {})
    this.#child.once('close', () => {
      this.#ended_at = machineNow()
      log.end()
    })
  }

  /** Resolves when it serves; rejects, with the end of its output, when it ends before or takes too long. */
  static async start(options: NodeProcessOptions): Promise<NodeProcess> {
    const node = new NodeProcess(options)
    try {
      await node.#ready()
      return node
    } catch (error) {
      node.kill()
      throw error
    }
  }

  get alive(): boolean {
    return this.#ended_at === undefined
  }

  kill(): void {
    this.#child.kill('SIGCONT')
    this.#child.kill('SIGKILL')
  }

  pause(): void {
    this.#child.kill('SIGSTOP')
  }

  resume(): void {
    this.#child.kill('SIGCONT')
  }

  drain(): void {
    this.#child.kill('SIGTERM')
  }

  jump(by_ms: number): void {
    if (this.#child.connected) this.#child.send({ jump_ms: by_ms })
  }

  /** Resolves when it has ended; false after `within_ms`. */
  async ended(within_ms: number): Promise<boolean> {
    if (!this.alive) return true
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<boolean>((resolve) => {
      timer = setTimeout(() => resolve(false), within_ms)
    })
    const over = new Promise<boolean>((resolve) => this.#child.once('close', () => resolve(true)))
    const ended = await Promise.race([over, late])
    clearTimeout(timer)
    return ended
  }

  /** Everything it asked of the store's room records, and when it could not get on. */
  history(): StoreHistory {
    try {
      return readStoreLines(readFileSync(this.#history, 'utf8'), this.#ended_at ?? machineNow())
    } catch {
      // It ended before it opened the file.
      return { calls: [], stalls: [], sessions: [] }
    }
  }

  #ready(): Promise<void> {
    return new Promise((resolve, reject) => {
      let output = ''
      const timer = setTimeout(
        () => reject(new Error(`${this.node} was not ready in time: ${output.slice(-2000)}`)),
        START_WITHIN_MS,
      )
      const hear = (chunk: Buffer) => {
        if (this.ws_url !== '') return
        output += chunk
        const found = /ready: websocket (ws:\/\/[\d.:]+), admin (http:\/\/[\d.:]+)/.exec(output)
        if (!found) return
        ;[, this.ws_url = '', this.admin_url = ''] = found
        clearTimeout(timer)
        resolve()
      }
      this.#child.stdout?.on('data', hear)
      this.#child.stderr?.on('data', hear)
      this.#child.once('close', () => {
        clearTimeout(timer)
        reject(new Error(`${this.node} ended at its start: ${output.slice(-2000)}`))
      })
    })
  }
}
