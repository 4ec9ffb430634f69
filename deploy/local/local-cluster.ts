import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
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

interface LocalClusterParts {
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
const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url))
/** Shorter than the default, so that clients of a node that hangs look for another while someone watches. */
const HEARTBEAT_SECONDS = '2'
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
  /** Where the room types of the nodes are. */
  readonly roomsDir: string
  /** The kind of load balancer: the name of its program, `built in`, `none` or `outside`. */
  readonly balancer: string
  readonly #parts: LocalClusterParts
  readonly #children: Children
  readonly #block: PortBlock
  #builtin: readonly BuiltinBalancer[] = []
  #ending = false

  private constructor(parts: LocalClusterParts, { folder, ports, block, redis, haproxy }: Machine) {
    const { env, clock, random, options } = parts
    this.#parts = parts
    this.roomsDir = env.ROOMS_DIR ?? EXAMPLES
    this.folder = folder
    this.ports = ports
    this.#block = block
    const { balancer } = options
    const inside = haproxy === undefined ? 'built in' : 'haproxy'
    this.balancer = balancer === 'none' || balancer === 'outside' ? balancer : inside
    this.#children = new Children({
      folder,
      clock,
      onExit: (child, exit, asked) => this.#ended(child, exit, asked),
    })
    this.secrets = {
      internalToken: env.INTERNAL_TOKEN?.split(',')[0] || randomToken(random, 32),
      keyringSecret: randomToken(random, 43),
      operatorToken: env.CONTROL_API_TOKENS?.split(',')[0] || randomToken(random, 32),
    }
    this.redisUrl = env.REDIS_URL ?? `redis://${here(ports.redis)}`
    // The keys of this run are sealed under a secret of its own: what an earlier one has left must not be found.
    const keyPrefix = `roomful-local-${randomToken(random, 8)}:`
    this.redis = new RedisView(this.redisUrl, keyPrefix)
    const { internalToken, keyringSecret, operatorToken } = this.secrets
    this.nodes = new Nodes({ addresses: this.addresses, internal_token: internalToken, clock })

    if (redis !== undefined)
      this.#children.add('redis', {
        program: redis,
        args: this.#redisArguments(),
        env,
        ready: /Ready to accept/,
      })
    const add = (name: string, command: string, own: NodeJS.ProcessEnv): void => {
      const said: NodeJS.ProcessEnv = {
        REDIS_URL: this.redisUrl,
        KEY_PREFIX: keyPrefix,
        INTERNAL_TOKEN: internalToken,
        LOG_FORMAT: 'json',
        ...own,
      }
      const all: NodeJS.ProcessEnv = { ...env, ...said }
      // A file that the person at the terminal names for one of these would contradict it; npm is none of the processes' business.
      for (const variable of Object.keys(said)) delete all[`${variable}_FILE`]
      delete all.npm_lifecycle_event
      this.#children.addRoomful(name, [...parts.roomful, command], all)
    }
    for (const [index, port] of ports.controls.entries())
      add(`control-${index + 1}`, 'control', {
        CONTROL_HOST: HOST,
        CONTROL_PORT: String(port),
        CONTROL_API_TOKENS: operatorToken,
        KEYRING_SECRET: keyringSecret,
      })
    for (const [index, { websocket, admin }] of ports.nodes.entries())
      add(`node-${index + 1}`, 'dataplane', {
        NODE_ID: `node-${index + 1}`,
        ROOMS_DIR: this.roomsDir,
        WS_HOST: HOST,
        WS_PORT: String(websocket),
        ADMIN_HOST: HOST,
        ADMIN_PORT: String(admin),
        CONTROL_URL: this.controlUrl,
        HEARTBEAT_SECONDS: env.HEARTBEAT_SECONDS ?? HEARTBEAT_SECONDS,
        ...(options.advertise && { ADVERTISE_URL: `ws://${here(websocket)}` }),
      })
    if (haproxy !== undefined)
      this.#children.add('haproxy', { program: haproxy, args: ['-db', '-f', this.#haproxyFile], env })
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
    const block = await PortBlock.claim(parts.random)
    const ports = await choosePorts({ ...options, free: options.freePorts }, block)
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
    await this.#block.release()
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
  /** What the ports are of that are not the documented ones. */
  readonly block: PortBlock
  /** Paths of programs; undefined: not there, or not wanted. */
  readonly redis: string | undefined
  readonly haproxy: string | undefined
}

/** What one run makes up for itself, unless INTERNAL_TOKEN and CONTROL_API_TOKENS say; of several, the first. */
interface Secrets {
  readonly internalToken: string
  readonly keyringSecret: string
  readonly operatorToken: string
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
