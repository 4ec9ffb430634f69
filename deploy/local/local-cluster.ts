import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { type NodeAddress, Nodes } from '../../examples/backend/nodes.ts'
import type { Clock } from '../../shared/clock.ts'
import { randomToken } from '../../shared/ids.ts'
import type { Random } from '../../shared/random.ts'
import { haproxyAt } from '../balancer/configuration.ts'
import { BuiltinBalancer } from './builtin-balancer.ts'
import type { ClusterOptions } from './options.ts'
import { choosePorts, PortBlock, type Ports } from './ports.ts'
import { type Child, Children, ClusterError, describeExit, type Exit } from './processes.ts'
import { findProgram } from './programs.ts'
import { RedisView } from './redis.ts'

export interface LocalClusterParts {
  readonly options: ClusterOptions
  readonly env: NodeJS.ProcessEnv
  /** The words behind `node` that run the command line of roomful. */
  readonly roomful: readonly string[]
  /** Where nodes find the control API, if not at an address of this cluster. */
  readonly controlUrl?: string | undefined
  readonly clock: Clock
  readonly random: Random
  /** Where the ends of processes are told, a line each. `asked`: someone here wanted it. */
  readonly tell: (line: string, asked: boolean) => void
}

const HOST = '127.0.0.1'
/** How long a process may take to end in order when everything ends. */
const END_MS = 8000

/** Redis, control processes, nodes and a load balancer, on this machine. */
export class LocalCluster {
  /** Where logs and the data of Redis are. */
  readonly folder: string
  readonly ports: Ports
  readonly secrets: Secrets
  readonly nodes: Nodes
  readonly redis: RedisView
  readonly redisUrl: string
  /** The kind of load balancer: the name of its program, `built in`, `none` or `outside`. */
  readonly balancer: string
  readonly #parts: LocalClusterParts
  readonly #children: Children
  readonly #haproxy: string | undefined
  readonly #block: PortBlock | undefined
  #builtin: readonly BuiltinBalancer[] = []
  #ending = false

  private constructor(parts: LocalClusterParts, machine: Machine) {
    const { env, clock, random, options } = parts
    this.#parts = parts
    this.folder = machine.folder
    this.ports = machine.ports
    this.#haproxy = machine.haproxy
    this.#block = machine.block
    this.balancer =
      options.balancer === 'none' || options.balancer === 'outside'
        ? options.balancer
        : machine.haproxy === undefined
          ? 'built in'
          : 'haproxy'
    this.#children = new Children({
      folder: this.folder,
      clock,
      onExit: (child, exit, asked) => this.#ended(child, exit, asked),
    })
    this.secrets = newSecrets(random)
    this.redisUrl = env.REDIS_URL ?? `redis://${HOST}:${this.ports.redis}`
    // The keys of this run are sealed under a secret of its own: what an earlier one has left must not be found.
    const keyPrefix = `roomful-local-${randomToken(random, 8)}:`
    this.redis = new RedisView(this.redisUrl, keyPrefix)
    const { internalToken } = this.secrets
    this.nodes = new Nodes({ addresses: this.addresses, internal_token: internalToken, clock })

    if (machine.redis !== undefined)
      this.#children.add('redis', {
        program: machine.redis,
        args: this.#redisArguments(),
        env,
        ready: /Ready to accept/,
      })
    const common: EnvironmentParts = {
      env,
      ports: this.ports,
      secrets: this.secrets,
      redisUrl: this.redisUrl,
      keyPrefix,
      controlUrl: this.controlUrl,
    }
    const roomful = (name: string, command: string, own: NodeJS.ProcessEnv) =>
      this.#children.addRoomful(name, [...parts.roomful, command], own)
    for (let index = 1; index <= options.controls; index++)
      roomful(`control-${index}`, 'control', controlEnvironment(common, index))
    for (let index = 1; index <= options.nodes; index++)
      roomful(`node-${index}`, 'dataplane', nodeEnvironment(common, index))
    if (this.#haproxy !== undefined)
      this.#children.add('haproxy', { program: this.#haproxy, args: ['-db', '-f', this.#haproxyFile], env })
  }

  /** Looks at what this machine has, and prepares everything; nothing but the reaper runs yet. Rejects with a ClusterError. */
  static async prepare(parts: LocalClusterParts): Promise<LocalCluster> {
    const { options, env } = parts
    const redis = env.REDIS_URL ? undefined : findProgram(['redis-server', 'valkey-server'], env.PATH)
    if (!env.REDIS_URL && redis === undefined)
      throw new ClusterError(
        'there is no redis-server (or valkey-server) in PATH: install one (apt install redis-server, brew install redis), or set REDIS_URL to a Redis that runs',
      )
    if (env.REDIS_URL && !/^rediss?:\/\//.test(env.REDIS_URL))
      throw new ClusterError('REDIS_URL must name one Redis here: redis://… or rediss://…')
    const mayBeHaproxy = options.balancer === 'auto' || options.balancer === 'haproxy'
    const haproxy = mayBeHaproxy ? findProgram(['haproxy'], env.PATH) : undefined
    if (options.balancer === 'haproxy' && haproxy === undefined)
      throw new ClusterError('there is no haproxy in PATH: install it, or leave --balancer away')
    const folder = await mkdtemp(join(tmpdir(), 'roomful-cluster-'))
    await mkdir(join(folder, 'redis'))
    const block = options.freePorts ? await PortBlock.claim(parts.random) : undefined
    const ports = await choosePorts({ ...options, free: options.freePorts, block })
    return new LocalCluster(parts, { folder, ports, block, redis, haproxy })
  }

  /** Starts everything; resolves when it serves. Rejects when a part does not. */
  async start(): Promise<void> {
    await this.children.get('redis')?.start()
    await this.redis.reach().catch((error: Error) => {
      throw new ClusterError(`the Redis at ${new URL(this.redisUrl).host} does not answer: ${error.message}`)
    })
    const processes = [...this.children.values()].filter(({ name }) => /^(control|node)-/.test(name))
    await Promise.all(processes.map((child) => child.start()))
    await this.#startBalancer()
  }

  /** Every process by its name, in the order of their start. */
  get children(): ReadonlyMap<string, Child> {
    return this.#children.all
  }

  /** The node, control process, `redis` or `haproxy` of this name. */
  child(name: string): Child | undefined {
    return this.children.get(name)
  }

  /** Ends everything in order: first what clients come through, then nodes, which save their rooms, control, and Redis. */
  async close(): Promise<void> {
    this.#ending = true
    for (const balancer of this.#builtin) balancer.close()
    const all = [...this.children.values()]
    for (const group of [/^haproxy$/, /^node-/, /^control-/]) {
      await Promise.all(all.filter(({ name }) => group.test(name)).map((child) => child.endWithin(END_MS)))
    }
    if (!this.children.has('redis')) await this.redis.clear().catch(() => undefined)
    this.redis.close()
    await this.children.get('redis')?.endWithin(END_MS)
    await this.#children.close()
    await this.#block?.release()
    await rm(join(this.folder, 'redis'), { recursive: true, force: true })
  }

  /** Ends every process at once, without waiting for anything. */
  abandon(): void {
    this.#ending = true
    this.#children.abandon()
  }

  /** Where the control API is: behind the load balancer, or where the first control process is. */
  get controlUrl(): string {
    const { api, controls } = this.ports
    return this.#parts.controlUrl ?? `http://${HOST}:${this.balancer === 'none' ? controls[0] : api}`
  }

  get #haproxyFile(): string {
    return join(this.folder, 'haproxy.cfg')
  }

  /** Where each node is asked about itself. */
  get addresses(): readonly NodeAddress[] {
    return this.ports.nodes.map(({ admin }, index) => ({
      admin_url: `http://${HOST}:${admin}`,
      node_id: `node-${index + 1}`,
    }))
  }

  /** Everything is kept on disk, so that a Redis that comes back has it. */
  #redisArguments(): string[] {
    const settings = {
      port: String(this.ports.redis),
      bind: HOST,
      dir: join(this.folder, 'redis'),
      appendonly: 'yes',
      save: '',
      'maxmemory-policy': 'noeviction',
    }
    return Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
  }

  #ended({ name, logFile }: Child, exit: Exit, asked: boolean): void {
    if (this.#ending) return
    const how = describeExit(exit)
    const line = asked
      ? `${name} is gone (${how})`
      : `${name} has ended by itself (${how}); ${logFile} may say why`
    this.#parts.tell(line, asked)
  }

  async #startBalancer(): Promise<void> {
    const haproxy = this.children.get('haproxy')
    if (haproxy) {
      await writeFile(this.#haproxyFile, await haproxyConfig(this.ports))
      await haproxy.start()
      const ended = haproxy.ended.then((exit) => {
        throw new ClusterError(`haproxy ended (${describeExit(exit)}); ${haproxy.logFile} says why`)
      })
      await Promise.race([this.#reachControl(), ended])
      return
    }
    if (this.balancer === 'none' || this.balancer === 'outside') return
    const { clock } = this.#parts
    const { websocket, api, nodes, controls } = this.ports
    const behindWebsocket = nodes.map((node) => ({ port: node.websocket, healthPort: node.admin }))
    const behindApi = controls.map((port) => ({ port, healthPort: port }))
    this.#builtin = [
      new BuiltinBalancer({ port: websocket, targets: behindWebsocket, clock }),
      new BuiltinBalancer({ port: api, targets: behindApi, clock }),
    ]
    await Promise.all(this.#builtin.map((balancer) => balancer.start()))
  }

  /** Resolves when control answers through the load balancer. */
  async #reachControl(): Promise<void> {
    const { clock } = this.#parts
    const deadline = clock.monotonic() + END_MS
    for (;;) {
      const answer = await fetch(`http://${HOST}:${this.ports.api}/readyz`).catch(() => undefined)
      if (answer?.ok) return
      if (clock.monotonic() > deadline)
        throw new ClusterError(
          `the load balancer lets no one through to control; the logs in ${this.folder} say why`,
        )
      await setTimeout(50)
    }
  }
}

/** What a run found on the machine. */
interface Machine {
  readonly folder: string
  readonly ports: Ports
  /** What the ports are of; undefined: the documented ones. */
  readonly block: PortBlock | undefined
  /** Paths of programs; undefined: not there, or not wanted. */
  readonly redis: string | undefined
  readonly haproxy: string | undefined
}

/** What one run makes up for itself. */
export interface Secrets {
  readonly internalToken: string
  readonly keyringSecret: string
  readonly operatorToken: string
}

const newSecrets = (random: Random): Secrets => ({
  internalToken: randomToken(random, 32),
  keyringSecret: randomToken(random, 43),
  operatorToken: randomToken(random, 32),
})

interface EnvironmentParts {
  /** What the person at the terminal has set; passed on where the cluster does not say otherwise. */
  readonly env: NodeJS.ProcessEnv
  readonly ports: Ports
  readonly secrets: Secrets
  readonly redisUrl: string
  readonly keyPrefix: string
  readonly controlUrl: string
}

/** Shorter than the default, so that clients of a node that hangs look for another while someone watches. */
const HEARTBEAT_SECONDS = '2'

/** The environment of a control process; `index` counts from 1. */
const controlEnvironment = (parts: EnvironmentParts, index: number): NodeJS.ProcessEnv =>
  environment(parts, {
    CONTROL_HOST: HOST,
    CONTROL_PORT: String(parts.ports.controls[index - 1]),
    CONTROL_API_TOKENS: parts.secrets.operatorToken,
    KEYRING_SECRET: parts.secrets.keyringSecret,
  })

/** The environment of a node; `index` counts from 1. */
const nodeEnvironment = (parts: EnvironmentParts, index: number): NodeJS.ProcessEnv => {
  const { websocket, admin } = parts.ports.nodes[index - 1]!
  return environment(parts, {
    NODE_ID: `node-${index}`,
    WS_HOST: HOST,
    WS_PORT: String(websocket),
    ADMIN_HOST: HOST,
    ADMIN_PORT: String(admin),
    CONTROL_URL: parts.controlUrl,
    HEARTBEAT_SECONDS: parts.env.HEARTBEAT_SECONDS ?? HEARTBEAT_SECONDS,
  })
}

function environment(parts: EnvironmentParts, own: Record<string, string>): NodeJS.ProcessEnv {
  const said: Record<string, string> = {
    REDIS_URL: parts.redisUrl,
    KEY_PREFIX: parts.keyPrefix,
    INTERNAL_TOKEN: parts.secrets.internalToken,
    LOG_FORMAT: 'json',
    ...own,
  }
  const env: NodeJS.ProcessEnv = { ...parts.env, ...said }
  // A file that the person at the terminal names for one of these would contradict it; npm is none of the processes' business.
  for (const name of Object.keys(said)) delete env[`${name}_FILE`]
  delete env.npm_lifecycle_event
  return env
}

/** The configuration of haproxy for these ports: that for production, at other places. */
async function haproxyConfig(ports: Ports): Promise<string> {
  const text = await readFile(new URL('../balancer/haproxy.cfg', import.meta.url), 'utf8')
  return haproxyAt(text, {
    websocket: here(ports.websocket),
    control: here(ports.api),
    operations: here(ports.balancer),
    nodes: ports.nodes.map(({ websocket, admin }) => ({ address: here(websocket), healthPort: admin })),
    controls: ports.controls.map((port) => ({ address: here(port) })),
  })
}

const here = (port: number): string => `127.0.0.1:${port}`
