import { execFile } from 'node:child_process'
import { appendFile, cp, mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Redis } from 'ioredis'
import { expect, vi } from 'vitest'
import { haproxyAt } from '../../../deploy/balancer/configuration.ts'
import { roomfulProgram } from '../../../deploy/local/machine.ts'
import { type Child, Children, describeExit } from '../../../deploy/local/processes.ts'
import { metricOf } from '../calls.ts'
import { programOr } from '../debian-package.ts'
import { codeOf, ROOT } from '../pages.ts'
import { asAdmin } from '../redis-server.ts'
import { newFolder, runEnvironment } from '../run-folder.ts'
import { environmentIn, unitCredentials, unitEnvironment, unitSettings } from '../units.ts'
import { Machines } from './machines.ts'

const run = promisify(execFile)

export const REDIS = ['redis-1', 'redis-2', 'redis-3'] as const
export const SENTINELS = ['sentinel-1', 'sentinel-2', 'sentinel-3'] as const
export const CONTROLS = ['control-1', 'control-2'] as const
export const NODES = ['node-1', 'node-2', 'node-3'] as const
/** All processes of the deployment, without Prometheus, which observes them. Those of a group start at the same time. */
export const GROUPS = [REDIS, SENTINELS, [...CONTROLS, ...NODES, 'balancer']] as const
export type Part = (typeof GROUPS)[number][number] | 'prometheus'
type RedisPart = (typeof REDIS)[number]

/** Port of the backend of the game, for notices. */
export const NOTICES_PORT = 8080
/** Time limit of a condition, on a busy machine. */
export const PATIENCE = { timeout: 120_000, interval: 200 }
/** Time limit for the orderly end of a process: TimeoutStopSec of the units. */
const END_MS = 45_000

/**
 * The deployment of the pages, each process on its own machine: three Redis with Sentinels, two control processes, three nodes, haproxy and
 * Prometheus. The commands of deploy/README.md and docs/redis.md install it from the files of deploy/, with other names, addresses, passwords
 * and folders. Where a file has another value, a comment says why. There is no systemd: the units are read and followed.
 */
export class DocumentedDeployment {
  readonly machines: Machines
  readonly #folder: string
  readonly #children: Children

  private constructor(machines: Machines, folder: string) {
    this.machines = machines
    this.#folder = folder
    this.#children = new Children({ folder })
  }

  /** Installs and starts everything. Resolves when every process serves. `roomsDir`: folder of the room types. */
  static async start(roomsDir: string): Promise<DocumentedDeployment> {
    const machines = await Machines.start({
      ...Object.fromEntries(REDIS.map((name) => [name, [6379, 26379]])),
      ...Object.fromEntries(CONTROLS.map((name) => [name, [3000]])),
      ...Object.fromEntries(NODES.map((name) => [name, [9100]])),
      balancer: [3000, 4000, 8404],
      prometheus: [9090],
    })
    const deployment = new DocumentedDeployment(machines, await newFolder())
    try {
      await deployment.#install(roomsDir)
      await deployment.start('prometheus')
      for (const group of GROUPS) await deployment.start(...group)
      return deployment
    } catch (error) {
      await deployment.close()
      throw error
    }
  }

  /** Returns the HTTP address of a port of a machine, for this process. */
  url(machine: string, port: number): string {
    return `http://${this.machines.door(machine, port)}`
  }

  /** Returns a secret of the installation, by the name of its file. */
  async secret(name: string): Promise<string> {
    return (await readFile(join(this.#etc('control-1'), 'roomful/secrets', name), 'utf8')).trim()
  }

  /** Runs `work` with a connection to a Redis or a Sentinel as the user `operator`. */
  async asOperator<T>(part: (typeof REDIS | typeof SENTINELS)[number], work: (redis: Redis) => Promise<T>) {
    const isSentinel = part.startsWith('sentinel')
    const door = this.machines.door(part.replace('sentinel', 'redis'), isSentinel ? 26379 : 6379)
    return asAdmin(`redis://operator:${await this.secret('redis-operator')}@${door}`, work)
  }

  /** Returns the master of Redis. Rejects if a Sentinel does not answer, or if they disagree. */
  async master(): Promise<RedisPart> {
    const ask = (redis: Redis) => redis.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'games')
    const answers = await Promise.all(SENTINELS.map((sentinel) => this.asOperator(sentinel, ask)))
    const [named, ...others] = answers.map((answer) => (answer as [string, string])[0])
    const master = REDIS.find((name) => this.machines.address(name) === named)
    if (!master || others.some((other) => other !== named))
      throw new Error(`the Sentinels name the masters ${[named, ...others].join(', ')}`)
    return master
  }

  /** Starts processes, all at the same time. Resolves when they serve. */
  async start(...parts: readonly Part[]): Promise<void> {
    await Promise.all(parts.map((part) => this.#child(part).start()))
  }

  /** Ends a process in order, as `systemctl stop` does. Rejects if it fails, or does not end in time. */
  async stop(part: Part): Promise<void> {
    const child = this.#child(part)
    await child.endWithin(END_MS)
    const { code, signal } = child.exit!
    // haproxy does not handle SIGTERM.
    if (code !== 0 && signal !== 'SIGTERM')
      throw new Error(`${part} ended with ${describeExit(child.exit!)}; ${child.logFile} says more`)
  }

  /** Ends processes with SIGKILL, all at the same time. */
  async kill(...parts: readonly Part[]): Promise<void> {
    await Promise.all(parts.map((part) => this.#child(part).kill()))
  }

  /** Resolves when every process serves, and knows the others. */
  async settled(): Promise<void> {
    const urls = [
      ...CONTROLS.map((name) => this.url(name, 3000)),
      ...NODES.map((name) => this.url(name, 9100)),
    ]
    await vi.waitFor(async () => {
      const master = await this.master()
      const replication = await this.asOperator(master, (redis) => redis.info('replication'))
      expect(replication.match(/state=online/g), `replicas of ${master}`).toHaveLength(REDIS.length - 1)
      const answers = await Promise.all(urls.map((url) => fetch(`${url}/readyz`)))
      expect(answers.map(({ status }) => status)).toEqual(urls.map(() => 200))
      const alive = NODES.map((name) => metricOf(this.url(name, 9100), 'service_nodes_alive'))
      expect(await Promise.all(alive)).toEqual(NODES.map(() => NODES.length))
      const behind = ['nodes', 'controls'].map((proxy) =>
        metricOf(this.url('balancer', 8404), `haproxy_backend_active_servers{proxy="${proxy}"}`),
      )
      expect(await Promise.all(behind), 'servers of haproxy').toEqual([NODES.length, CONTROLS.length])
    }, PATIENCE)
  }

  /**
   * Resolves when each Redis has passed everything that the master has acknowledged to the system. Then a SIGKILL does not lose it. A crash of
   * the machine may still lose a second (appendfsync everysec).
   */
  async written(): Promise<void> {
    const read = (name: RedisPart, section: string, field: RegExp) =>
      this.asOperator(name, async (redis) => Number(field.exec(await redis.info(section))![1]))
    const offset = (name: RedisPart) => read(name, 'replication', /\n(?:slave|master)_repl_offset:(\d+)/)
    const acknowledged = await offset(await this.master())
    for (const name of REDIS)
      await vi.waitFor(async () => {
        expect(await offset(name), name).toBeGreaterThanOrEqual(acknowledged)
        expect(await read(name, 'persistence', /aof_buffer_length:(\d+)/), name).toBe(0)
      }, PATIENCE)
  }

  /** Returns the value of a query of Prometheus for each set of labels. */
  async query(
    promql: string,
  ): Promise<readonly { readonly metric: Record<string, string>; readonly value: number }[]> {
    const url = `${this.url('prometheus', 9090)}/api/v1/query?${new URLSearchParams({ query: promql })}`
    const { data } = (await (await fetch(url)).json()) as {
      data: { result: { metric: Record<string, string>; value: [number, string] }[] }
    }
    return data.result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }))
  }

  async close(): Promise<void> {
    await this.#children.close()
    await this.machines.close()
  }

  #child(part: Part): Child {
    return this.#children.all.get(part)!
  }

  /** Folder that replaces `/` in the paths of a machine. */
  #root(machine: string): string {
    return join(this.#folder, machine)
  }

  #etc(machine: string): string {
    return join(this.#root(machine), 'etc')
  }

  /** Runs commands of a page in the root of the repository, on a machine. */
  async #type(machine: string, commands: string, env: NodeJS.ProcessEnv = {}): Promise<void> {
    const typed = rooted(commands, this.#root(machine)).replaceAll('sudo ', '')
    await run('sh', ['-ec', typed], { cwd: ROOT, env: { ...runEnvironment(), ...env } })
  }

  async #install(roomsDir: string): Promise<void> {
    const [, files = '', redis = ''] = codeOf('deploy/README.md', 'sh', 'systemd')
    const [first = ''] = REDIS
    await mkdir(join(this.#etc(first), 'systemd/system'), { recursive: true })
    await this.#type(first, files)
    await this.#type(first, redis)
    // All machines have the same secrets.
    for (const machine of [...REDIS, ...CONTROLS, ...NODES].filter((name) => name !== first))
      await cp(this.#root(first), this.#root(machine), { recursive: true })
    for (const machine of REDIS) await this.#addRedis(machine)
    for (const machine of CONTROLS) await this.#addControl(machine)
    for (const machine of NODES) await this.#addNode(machine, roomsDir)
    await this.#addBalancer()
    await this.#addPrometheus()
  }

  async #addRedis(machine: RedisPart): Promise<void> {
    const [settings = ''] = codeOf('docs/redis.md', 'sh', 'Replicas and Sentinels')
    const address = (name: string) => this.machines.address(name)
    await this.#type(machine, settings, { ADDRESS: address(machine), MASTER_ADDRESS: address(REDIS[0]) })
    await mkdir(join(this.#root(machine), 'var/lib/redis'), { recursive: true })
    const programs = { 'redis.conf': /Ready to accept connections/, 'sentinel.conf': /Sentinel ID is/ }
    for (const [name, ready] of Object.entries(programs)) {
      const file = join(this.#etc(machine), 'redis', name)
      await edit(file, (text) => rooted(text, this.#root(machine)))
      const isSentinel = name === 'sentinel.conf'
      const words = [programOr('redis-server'), file, ...(isSentinel ? ['--sentinel'] : [])]
      this.#add(machine, isSentinel ? machine.replace('redis', 'sentinel') : machine, words, { ready })
    }
  }

  async #addControl(machine: string): Promise<void> {
    await appendFile(join(this.#etc(machine), 'roomful/control-1.env'), 'CONTROL_HOST=0.0.0.0\n')
    await this.#addUnit(machine, 'roomful-control@.service')
  }

  async #addNode(machine: string, roomsDir: string): Promise<void> {
    const folder = join(this.#etc(machine), 'roomful')
    await edit(join(folder, 'roomful.env'), (text) =>
      replaced(text, {
        'CONTROL_URL=http://127.0.0.1:3000': 'CONTROL_URL=http://balancer:3000',
        'ROOMS_DIR=/opt/roomful/rooms': `ROOMS_DIR=${roomsDir}`,
        '#NOTIFY_URL=https://api.example.com/notices': `NOTIFY_URL=http://outside:${NOTICES_PORT}/notices`,
        // The test has a few clients.
        'DRAIN_SECONDS=20': 'DRAIN_SECONDS=1',
      }),
    )
    await edit(join(folder, 'node-1.env'), (text) =>
      replaced(text, { '#ADMIN_URL=http://node-1.internal:9100': `ADMIN_URL=http://${machine}:9100` }).concat(
        'WS_HOST=0.0.0.0\nADMIN_HOST=0.0.0.0\n',
        // On a busy machine, a restart of everything takes longer than the default of a minute.
        'SESSION_RESUME_TTL=600\n',
      ),
    )
    await this.#addUnit(machine, 'roomful-node@.service')
  }

  /** Adds the first instance of a unit. It gets the files, variables and secrets that the unit names. */
  async #addUnit(machine: string, unit: string): Promise<void> {
    const of = await unitSettings(unit)
    const place = (path: string) => rooted(path.replace(/^-/, '').replaceAll('%i', '1'), this.#root(machine))
    const credentials = join(this.#root(machine), 'credentials')
    await mkdir(credentials)
    for (const [name, path] of unitCredentials(of)) {
      await symlink(place(path), join(credentials, name))
      if (name === 'redis-url') await edit(place(path), sentinelUrl)
    }
    const files = await Promise.all(of('EnvironmentFile').map((path) => readFile(place(path), 'utf8')))
    const env = {
      ...unitEnvironment(of, { d: credentials, H: machine, i: '1' }),
      ...environmentIn(files.join('\n')),
    }
    const [, command = ''] = /roomful\.js (.*)$/.exec(of('ExecStart')[0]!)!
    const words = [process.execPath, ...roomfulProgram().words, command]
    this.#add(machine, machine, words, { ready: / ready: /, env })
  }

  async #addBalancer(): Promise<void> {
    const text = await readFile(join(ROOT, 'deploy/balancer/haproxy.cfg'), 'utf8')
    // Addresses instead of names: haproxy asks a name server for names, and there is none.
    const at = (name: string, port: number) => `${this.machines.address(name)}:${port}`
    const placed = haproxyAt(text, {
      websocket: ':4000',
      control: ':3000',
      operations: ':8404',
      nodes: NODES.map((name) => ({ address: at(name, 4000), healthPort: 9100 })),
      controls: CONTROLS.map((name) => ({ address: at(name, 3000) })),
    })
    const file = join(this.#folder, 'haproxy.cfg')
    await writeFile(file, placed)
    this.#add('balancer', 'balancer', [programOr('haproxy'), '-db', '-f', file])
  }

  async #addPrometheus(): Promise<void> {
    const folder = join(this.#folder, 'prometheus')
    await cp(join(ROOT, 'deploy/prometheus'), folder, { recursive: true })
    await edit(join(folder, 'prometheus.yml'), (text) =>
      // The test waits until Prometheus has seen each restart. The times in the rules stay.
      replaced(text, {
        'scrape_interval: 10s': 'scrape_interval: 2s',
        'scrape_timeout: 5s': 'scrape_timeout: 2s',
        'evaluation_interval: 10s': 'evaluation_interval: 2s',
      }),
    )
    const words = [`--config.file=${folder}/prometheus.yml`, `--storage.tsdb.path=${folder}/data`]
    this.#add('prometheus', 'prometheus', [programOr('prometheus'), ...words], {
      ready: /Server is ready to receive web requests/,
    })
  }

  #add(
    machine: string,
    name: string,
    words: readonly string[],
    { ready, env = {} }: { ready?: RegExp; env?: Record<string, string> } = {},
  ): void {
    const [program = '', ...args] = this.machines.command(machine, words)
    this.#children.add(name, { program, args, env: { ...runEnvironment(), ...env }, ...(ready && { ready }) })
  }
}

/** Returns a text with the folder `root` before absolute paths of an installation. */
const rooted = (text: string, root: string): string => text.replaceAll(/\/(?=(etc|var\/lib)\/)/g, `${root}/`)

/** Replaces the server of a URL with the Sentinels, as docs/redis.md says. */
const sentinelUrl = (text: string): string => {
  const { username, password } = new URL(text)
  return `redis+sentinel://${username}:${password}@${REDIS.join(',')}/games?sentinel_username=${username}&sentinel_password=${password}\n`
}

async function edit(file: string, change: (text: string) => string): Promise<void> {
  await writeFile(file, change(await readFile(file, 'utf8')))
}

/** Replaces lines. Throws if one of them does not exist. */
function replaced(text: string, lines: Readonly<Record<string, string>>): string {
  return Object.entries(lines).reduce((now, [line, by]) => {
    if (!now.includes(line)) throw new Error(`there is no "${line}" in:\n${now}`)
    return now.replace(line, () => by)
  }, text)
}
