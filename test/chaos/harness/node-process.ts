import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Child, Children } from '../../../deploy/local/processes.ts'
import { readStoreLines, type StoreHistory } from '../node/recording-store.ts'
import { machineNow } from '../now.ts'

const MAIN = fileURLToPath(new URL('../node/main.ts', import.meta.url))

export interface NodeProcessOptions {
  /** Its name, of this one life. */
  readonly node: string
  readonly unfenced: boolean
  readonly env: Readonly<Record<string, string>>
}

/** One life of a node: a process of its own, with what it did to the store. */
export class NodeProcess {
  readonly node: string
  readonly #child: Child
  readonly #history: string
  #endedAt: number | undefined

  private constructor(children: Children, { node, unfenced, env }: NodeProcessOptions) {
    this.node = node
    this.#history = join(children.folder, `${node}.store`)
    const words = ['--import', 'tsx', MAIN, this.#history, ...(unfenced ? ['--unfenced'] : [])]
    const { PATH, HOME, TMPDIR } = process.env
    this.#child = children.addRoomful(
      node,
      words,
      { PATH, HOME, TMPDIR, ...env, NODE_ID: node },
      {
        ipc: true,
        onExit: () => {
          this.#endedAt = machineNow()
        },
      },
    )
  }

  /** Resolves when it serves; its log goes to the folder of `children`. Rejects when it ends before or takes too long. */
  static async start(children: Children, options: NodeProcessOptions): Promise<NodeProcess> {
    const node = new NodeProcess(children, options)
    await node.#child.start()
    return node
  }

  get wsUrl(): string {
    return this.#child.said?.groups?.ws_url ?? ''
  }

  get adminUrl(): string {
    return this.#child.said?.groups?.admin_url ?? ''
  }

  get alive(): boolean {
    return this.#endedAt === undefined
  }

  kill(): void {
    void this.#child.kill()
  }

  pause(): void {
    this.#child.pause()
  }

  resume(): void {
    this.#child.resume()
  }

  drain(): void {
    this.#child.end()
  }

  jump(byMs: number): void {
    this.#child.send({ jumpMs: byMs })
  }

  /** Resolves when it has ended; false after `withinMs`. */
  async ended(withinMs: number): Promise<boolean> {
    return Promise.race([this.#child.ended.then(() => true), sleep(withinMs, false, { ref: false })])
  }

  /** Everything it asked of the store's room records, and when it could not get on. */
  history(): StoreHistory {
    try {
      return readStoreLines(readFileSync(this.#history, 'utf8'), this.#endedAt ?? machineNow())
    } catch {
      // It ended before it opened the file.
      return { calls: [], stalls: [], sessions: [] }
    }
  }
}
