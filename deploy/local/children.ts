import { join } from 'node:path'
import type { Clock } from '../../shared/clock.ts'
import { Child, type ChildOptions } from './child.ts'
import { Warden } from './warden.ts'

export interface ChildrenOptions {
  /** Takes what they print, a file each. */
  readonly folder: string
  readonly clock: Clock
  readonly on_exit?: ChildOptions['on_exit']
}

/** Processes that end with this one, however that ends: those of a cluster on this machine, for people, load tests, tests and chaos. */
export class Children {
  /** By their names, in the order in which they were added. */
  readonly all = new Map<string, Child>()
  readonly #options: ChildrenOptions
  readonly #warden = new Warden()

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
    on_exit = this.#options.on_exit ?? (() => undefined),
  ): Child {
    const { folder, clock } = this.#options
    const log_file = join(folder, `${name}.log`)
    const child = new Child({ ...how, name, log_file, warden: this.#warden, clock, on_exit })
    this.all.set(name, child)
    return child
  }

  /** Prepares a process of roomful: the words behind `node`, which make it say where it is when it is ready. */
  addRoomful(
    name: string,
    words: readonly string[],
    env: NodeJS.ProcessEnv,
    more: { readonly ipc?: boolean; readonly on_exit?: ChildOptions['on_exit'] } = {},
  ): Child {
    const how = { program: process.execPath, args: words, env, ready: READY, ipc: more.ipc ?? false }
    return this.add(name, how, more.on_exit)
  }

  /** Ends every process at once, without waiting for anything. */
  abandon(): void {
    for (const child of this.all.values()) void child.kill()
  }

  /** Ends every process at once; resolves when all are gone. */
  async close(): Promise<void> {
    await Promise.all([...this.all.values()].map((child) => child.kill()))
    await this.#warden.close()
  }
}

/** What a process of roomful says when it serves; a node also where its websocket and its admin port are. */
const READY = / ready: (?:websocket (?<ws_url>[^,"]+), admin (?<admin_url>[^,"\s]+)|[^"\n]+)["\n]/
