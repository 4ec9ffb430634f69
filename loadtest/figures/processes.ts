import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Child } from '../../deploy/local/child.ts'
import { findProgram } from '../../deploy/local/programs.ts'
import { Warden } from '../../deploy/local/warden.ts'
import { systemClock } from '../../shared/clock.ts'

const BUILT = fileURLToPath(new URL('../../dist/deploy/cli/roomful.js', import.meta.url))
const SOURCE = fileURLToPath(new URL('../../deploy/cli/roomful.ts', import.meta.url))

const HAPROXY_MS = 10_000

/** Whether nodes run the compiled code. */
export const isBuilt = (): boolean => existsSync(BUILT)

/** Starts the processes of a measurement, and ends them whatever becomes of this one. */
export class Processes {
  readonly #folder: string
  readonly #warden = new Warden()
  readonly #all = new Set<Child>()

  /** `folder` takes what they print. */
  constructor(folder: string) {
    this.#folder = folder
  }

  /** A command of roomful; resolves when it serves. `env` is all of its environment but PATH. */
  async roomful(name: string, command: string, env: Readonly<Record<string, string>>): Promise<Child> {
    const program = isBuilt() ? [BUILT] : ['--import', 'tsx', SOURCE]
    // Its inspector listens where it likes once it is asked for, and not before.
    const child = this.#child(
      name,
      process.execPath,
      ['--inspect-port=127.0.0.1:0', ...program, command],
      { PATH: process.env.PATH, HOME: process.env.HOME, NODE_ENV: 'production', LOG_FORMAT: 'json', ...env },
      / ready: /,
    )
    await child.start()
    return child
  }

  /** A Redis that keeps everything it is told in `folder`, as it comes: written before it answers, synced to disk each second. */
  async redis(port: number, folder: string): Promise<Child> {
    const program = findProgram(['redis-server', 'valkey-server'], process.env.PATH)
    if (program === undefined) throw new Error('there is no redis-server (or valkey-server) in PATH')
    const settings = {
      port: String(port),
      bind: '127.0.0.1',
      dir: folder,
      save: '',
      appendonly: 'yes',
      appendfsync: 'everysec',
      'maxmemory-policy': 'noeviction',
    }
    const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
    const child = this.#child('redis', program, args, process.env, /Ready to accept/)
    await child.start()
    return child
  }

  /** A haproxy with this configuration file; resolves once it lets a request for `url` through. Rejects after 10 s without. */
  async haproxy(file: string, url: string): Promise<Child> {
    const program = findProgram(['haproxy'], process.env.PATH)
    if (program === undefined) throw new Error('there is no haproxy in PATH')
    const child = this.#child('haproxy', program, ['-db', '-f', file], process.env)
    await child.start()
    const deadline = systemClock.monotonic() + HAPROXY_MS
    while (!(await fetch(url).catch(() => undefined))?.ok) {
      if (systemClock.monotonic() > deadline)
        throw new Error(`haproxy lets nobody through to ${url}: ${await this.printed(child)}`)
      await sleep(50)
    }
    return child
  }

  /** What a process has printed so far. */
  printed(child: Child): Promise<string> {
    return readFile(child.log_file, 'utf8')
  }

  /** Ends every process at once. */
  async close(): Promise<void> {
    await Promise.all([...this.#all].map((child) => child.kill()))
    await this.#warden.close()
  }

  #child(name: string, program: string, args: string[], env: NodeJS.ProcessEnv, ready?: RegExp): Child {
    const child = new Child({
      name,
      program,
      args,
      env,
      ...(ready && { ready }),
      log_file: join(this.#folder, `${name}.log`),
      warden: this.#warden,
      clock: systemClock,
      on_exit: () => undefined,
    })
    this.#all.add(child)
    return child
  }
}
