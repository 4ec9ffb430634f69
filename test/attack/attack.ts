import { type ChildProcess, fork } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { LocalCluster } from '../../deploy/local/local-cluster.ts'
import { CLOSE } from '../../shared/protocol/error-codes.ts'
import { callControl, metricOf } from '../support/calls.ts'
import { PATIENCE_MS, RawClient } from '../support/raw-client.ts'

/** Result of an attack. */
export interface Outcome {
  /** The attacker's actions, with figures. */
  readonly did: string
  /** Broken promises, a sentence each. False: the promise was kept. */
  readonly broken: readonly (string | false)[]
  /** Promises about time that were kept too late, a sentence each. On a slow machine they may be. */
  readonly slow?: readonly (string | false)[]
}

/** An attack by one player, or by a client without a token. */
export interface Attack {
  readonly name: string
  /** The promise of the service that the attack tests. */
  readonly holds: string
  /** True: the times of the bystanders are not judged, because it starts a service of its own, or connects a crowd that is no attack. */
  readonly ignoresTimes?: boolean
  run(target: Target, seconds: number): Promise<Outcome>
}

/** Repeats `work` for `seconds`. Resolves with the seconds that it took. */
export async function forSeconds(seconds: number, work: (round: number) => Promise<void>): Promise<number> {
  const began = performance.now()
  for (let round = 0; performance.now() - began < seconds * 1000; round++) await work(round)
  return (performance.now() - began) / 1000
}

/** Waits for one turn of the event loop, or until the socket accepts data again. */
export async function breathe(client: RawClient): Promise<void> {
  do await sleep(1)
  while (!client.flowing && client.ended === undefined)
}

/** Counts of values. */
export class Tally<T> extends Map<T, number> {
  add(what: T): void {
    this.set(what, (this.get(what) ?? 0) + 1)
  }

  override toString(): string {
    return [...this].map(([what, times]) => `${what} × ${times}`).join(', ')
  }
}

/**
 * Connects 50 clients at the same time, repeatedly for `seconds`, each with its own hello, to `urls` in turn. Calls `onEnd` with the ending of
 * each client. Resolves with the seconds that it took.
 */
export function crowds(
  seconds: number,
  urls: readonly string[],
  hello: (index: number) => object,
  onEnd: (ending: number | 'welcome' | 'no upgrade') => void,
): Promise<number> {
  const connect = async (index: number): Promise<void> => {
    const client = await RawClient.open(urls[index % urls.length]!).catch(() => undefined)
    const player = client && (await greet(client, hello(index)))
    onEnd(player ? 'welcome' : (client?.ended ?? 'no upgrade'))
    client?.cut()
  }
  return forSeconds(
    seconds,
    async () => void (await Promise.all(Array.from({ length: 50 }, (_, i) => connect(i)))),
  )
}

/** Returns the milliseconds until an honest client gets its `welcome`. Infinity: the server refused it. */
export async function newcomer(target: Target, url: string, sub: string): Promise<number> {
  const hello = { t: 'hello', project_id: target.projectId, token: await tokenFor(target, { sub }) }
  const began = performance.now()
  for (;;) {
    const client = await RawClient.open(url).catch(() => undefined)
    const player = client && (await greet(client, hello))
    client?.cut()
    const took = performance.now() - began
    if (player) return took
    // An overloaded node refuses newcomers for some seconds. The SDK tries again.
    if (client?.ended !== CLOSE.overloaded || took > PATIENCE_MS) return Number.POSITIVE_INFINITY
    await sleep(250)
  }
}

/** A service under attack. Plain data, because the attacker is another process. */
export interface Target {
  /** Websocket address of the load balancer. */
  readonly frontUrl: string
  /** Websocket addresses of the nodes, without the load balancer. */
  readonly wsUrls: readonly string[]
  /** Admin addresses of the nodes, in the same order. */
  readonly adminUrls: readonly string[]
  /** Process ids of the nodes, in the same order. */
  readonly nodePids: readonly number[]
  readonly controlUrl: string
  readonly operatorToken: string
  readonly redisUrl: string
  /** Prefix of the service's keys in Redis. */
  readonly keyPrefix: string
  readonly projectId: string
}

/** Limits of `welcome`. */
interface Limits {
  readonly messages_per_second: number
  readonly message_burst: number
}

/** A client with a session. */
export interface Player {
  readonly client: RawClient
  readonly limits: Limits
}

/** Calls the control API as an operator. Returns the body of the answer. Rejects if the status is not 2xx. */
export const call = (
  { controlUrl, operatorToken }: Pick<Target, 'controlUrl' | 'operatorToken'>,
  path: string,
  body: object,
): Promise<Record<string, string>> =>
  callControl(controlUrl, 'POST', path, body, { authorization: `Bearer ${operatorToken}` })

/** Returns a token of the target's project. */
export async function tokenFor(target: Target, claims: object = {}): Promise<string> {
  const { projectId } = target
  return (await call(target, '/tokens', { project_id: projectId, ttl_seconds: 3600, ...claims })).token!
}

/** Connects, and sends hello with a token. Undefined: the server refused it. */
export async function enter(target: Target, url: string, token: string): Promise<Player | undefined> {
  return greet(await RawClient.open(url), { t: 'hello', project_id: target.projectId, token })
}

/** Sends `hello` on a new connection. Undefined: the server refused it. */
export async function greet(client: RawClient, hello: object): Promise<Player | undefined> {
  const welcome = await client.ask(hello, ({ t }) => t === 'welcome')
  return welcome && { client, limits: welcome.limits as Limits }
}

/** Joins a room. False: the join was refused. */
export async function join({ client }: Player, roomType: string, key: string, ref = 1): Promise<boolean> {
  const answer = await client.ask(
    { t: 'join', request_id: ref, room_type: roomType, options: { key } },
    (received) => (received.t === 'joined' || received.t === 'error') && received.request_id === ref,
  )
  return answer?.t === 'joined'
}

/** Returns the sum of a metric over all series and all nodes. */
export async function metric({ adminUrls }: Target, name: string): Promise<number> {
  const values = await Promise.all(adminUrls.map((url) => metricOf(url, name)))
  return values.reduce((sum, value) => sum + value, 0)
}

/** Returns the number of commands that the store has executed since its start, and its number of keys. */
export async function storeFigures({ redisUrl }: Target): Promise<{ commands: number; keys: number }> {
  const redis = new Redis(redisUrl)
  try {
    const info = await redis.info('stats')
    return { commands: Number(/total_commands_processed:(\d+)/.exec(info)?.[1]), keys: await redis.dbsize() }
  } finally {
    redis.disconnect()
  }
}

/** Options of `startService`. */
interface ServiceOptions {
  readonly nodes: number
  readonly roomsDir: string
  /** Variables of its processes. */
  readonly env?: NodeJS.ProcessEnv
  /** Called with a line about each process that ended without a request of this process. */
  readonly onEnd: (line: string) => void
}

/** Starts Redis, control and nodes with their default limits, and creates a project. The caller closes the cluster. */
export async function startService({ nodes, roomsDir, env, onEnd }: ServiceOptions) {
  const cluster = await LocalCluster.prepare({
    nodes,
    controls: 1,
    balancer: 'auto',
    env: {
      ...process.env,
      NODE_ENV: 'production',
      ROOMS_DIR: roomsDir,
      HEARTBEAT_SECONDS: '10',
      LOG_LEVEL: 'error',
      ...env,
    },
    tell: (line, asked) => void (asked || onEnd(line)),
  })
  try {
    await cluster.start()
    const { secrets } = cluster
    const access = { controlUrl: cluster.controlUrl, operatorToken: secrets.operatorToken }
    const { id: projectId } = await call(access, '/projects', { name: 'under attack' })
    const target: Target = {
      ...access,
      frontUrl: cluster.wsUrl,
      wsUrls: cluster.nodes.map(({ wsUrl }) => wsUrl),
      adminUrls: cluster.nodes.map(({ adminUrl }) => adminUrl),
      nodePids: cluster.nodes.map(({ child }) => child.pid ?? 0),
      redisUrl: cluster.redisUrl,
      keyPrefix: cluster.keyPrefix,
      projectId: projectId!,
    }
    return { cluster, target }
  } catch (error) {
    await cluster.close()
    throw error
  }
}

/** Time that an order may take beyond its seconds. After it, the process counts as hanging. */
const SPARE_SECONDS = 240

/** A child process that carries out orders, so that their work does not slow down the measurements of this process. */
export class OtherProcess<Order extends { readonly seconds: number }, Outcome> {
  readonly #child: ChildProcess

  /** Starts the process. `script` calls `carryOutOrders` where `process.send` is defined. */
  constructor(script: string) {
    this.#child = fork(script, { execArgv: ['--import', 'tsx'] })
  }

  /** Resolves with the outcome of an order. Rejects if the process ends, or takes a minute longer than the order's seconds. */
  carryOut(order: Order): Promise<Outcome> {
    const child = this.#child
    return new Promise((resolve, reject) => {
      const broken = (): void =>
        reject(new Error(`the other process did not finish ${JSON.stringify(order).slice(0, 200)}`))
      const timer = setTimeout(broken, (order.seconds + SPARE_SECONDS) * 1000)
      child.once('exit', broken)
      child.once('message', (outcome: Outcome) => {
        clearTimeout(timer)
        child.off('exit', broken)
        resolve(outcome)
      })
      child.send(order)
    })
  }

  end(): void {
    this.#child.kill('SIGKILL')
  }
}

/** Carries out the orders of the parent process, and ends with it. */
export function carryOutOrders<Order, Outcome>(carryOut: (order: Order) => Promise<Outcome>): void {
  process.on('message', (order: Order) => {
    void carryOut(order).then((outcome) => process.send?.(outcome))
  })
  process.once('disconnect', () => process.exit(0))
}
