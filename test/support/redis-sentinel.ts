import { asAdmin, until } from './redis-admin.ts'
import { type RedisServer, startRedisWith } from './redis-server.ts'

/** What the Sentinels call the master. */
const NAME = 'games'
/** After this long without an answer the master is taken for dead, milliseconds. */
const DOWN_AFTER_MS = 400

/** A master with replicas and the Sentinels that watch over it, all real and of one test. They keep no data on disk. */
export interface RedisSentinel {
  /** `redis+sentinel://…/games` with every Sentinel. */
  readonly url: string
  readonly sentinels: readonly RedisServer[]
  /** The first was the first master. */
  readonly servers: readonly RedisServer[]
  /** The master, as the Sentinels see it now. */
  master(): Promise<RedisServer>
  /** Has a replica promoted while the master is well; resolves once the Sentinels name it. */
  failover(): Promise<void>
  /** Kills the master, as a crash would. Resolves with it at once; the Sentinels appoint another within about 2 s. */
  killMaster(): Promise<RedisServer>
  close(): Promise<void>
}

/** Starts a master, `replicas` replicas and three Sentinels; `settings` are for the servers. */
export async function startRedisSentinel({
  replicas = 1,
  settings = {},
}: {
  replicas?: number
  settings?: Readonly<Record<string, string>>
} = {}): Promise<RedisSentinel> {
  const servers: RedisServer[] = []
  const sentinels: RedisServer[] = []
  try {
    const quick = { 'repl-diskless-sync-delay': '0', ...settings }
    const master = await startRedisWith({ settings: quick })
    servers.push(master)
    const { port } = new URL(master.url)
    for (let n = 0; n < replicas; n++) {
      const replica = await startRedisWith({ settings: { ...quick, replicaof: `127.0.0.1 ${port}` } })
      servers.push(replica)
      await until('the replica follows', () => follows(replica))
    }
    sentinels.push(...(await Promise.all([1, 2, 3].map(() => startSentinel(port)))))
    await Promise.all(sentinels.map((sentinel) => hurry(sentinel, replicas)))
    return new SentinelSet(servers, sentinels)
  } catch (error) {
    await Promise.all([...sentinels, ...servers].map((server) => server.close()))
    throw error
  }
}

const follows = (replica: RedisServer): Promise<boolean> =>
  asAdmin(replica.url, async (redis) => (await redis.info('replication')).includes('master_link_status:up'))

const startSentinel = (port: string): Promise<RedisServer> =>
  startRedisWith({
    sentinel: [
      `sentinel monitor ${NAME} 127.0.0.1 ${port} 2`,
      `sentinel down-after-milliseconds ${NAME} ${DOWN_AFTER_MS}`,
      `sentinel failover-timeout ${NAME} 1200`,
    ],
  })

/** Has a Sentinel look and tell more often than every few seconds, and waits until it knows the others and the replicas. */
async function hurry(sentinel: RedisServer, replicas: number): Promise<void> {
  await asAdmin(sentinel.url, async (redis) => {
    const periods = { 'info-period': 200, 'publish-period': 200, 'ask-period': 100, 'ping-period': 100 }
    await redis.call('SENTINEL', 'DEBUG', ...Object.entries(periods).flat())
    await until('the Sentinels know each other', async () => {
      const state = (await redis.call('SENTINEL', 'MASTER', NAME)) as string[] | Record<string, string>
      const fields = Array.isArray(state)
        ? Object.fromEntries(state.flatMap((key, n) => (n % 2 === 0 ? [[key, state[n + 1]]] : [])))
        : state
      return fields['num-other-sentinels'] === '2' && fields['num-slaves'] === String(replicas)
    })
  })
}

class SentinelSet implements RedisSentinel {
  readonly url: string
  readonly servers: readonly RedisServer[]
  readonly sentinels: readonly RedisServer[]

  constructor(servers: readonly RedisServer[], sentinels: readonly RedisServer[]) {
    this.servers = servers
    this.sentinels = sentinels
    this.url = `redis+sentinel://${sentinels.map(({ url }) => new URL(url).host).join(',')}/${NAME}`
  }

  async master(): Promise<RedisServer> {
    const [, port] = (await this.#ask('GET-MASTER-ADDR-BY-NAME')) as [string, string]
    const server = this.servers.find(({ url }) => new URL(url).port === port)
    if (!server) throw new Error(`the Sentinels name a master at port ${port}, which is none of the servers`)
    return server
  }

  async failover(): Promise<void> {
    const before = await this.master()
    await this.#ask('FAILOVER')
    await until('the Sentinels appoint another master', async () => (await this.master()) !== before)
  }

  async killMaster(): Promise<RedisServer> {
    const master = await this.master()
    await master.stop()
    return master
  }

  async close(): Promise<void> {
    await Promise.all([...this.sentinels, ...this.servers].map((server) => server.close()))
  }

  #ask(command: string): Promise<unknown> {
    return asAdmin(this.sentinels[0]!.url, (redis) => redis.call('SENTINEL', command, NAME))
  }
}
