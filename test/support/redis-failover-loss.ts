/**
 * Measures the loss of an asynchronous fail-over. Rooms commit to a master as fast as it answers. The master is killed (SIGKILL), and its
 * replica is promoted. The program counts the acknowledged commits that the replica does not have.
 *
 *   npx tsx test/support/redis-failover-loss.ts [runs]
 *
 * A proxy between master and replica delays the replication stream by some milliseconds, like a network. The data in flight is lost when the
 * master dies. Prints one line for each kind of deployment.
 */
import { connect, createServer, type Socket } from 'node:net'
import { Redis } from 'ioredis'
import { runScript, SCRIPTS } from '../../shared/store/redis/clients.ts'
import { asAdmin, follows, startRedisWith, until } from './redis-server.ts'

const ROOMS = 50
const LOAD_MS = 400
const ENTRY = Buffer.alloc(200, 'e')
const TTL_MS = '600000'

interface Kind {
  readonly name: string
  readonly delayMs: number
  readonly settings?: Readonly<Record<string, string>>
  /** One WAIT for a replica follows the commits of one turn. A commit counts as acknowledged when the replica has it. */
  readonly wait?: true
  /** The replica loses its connection to the master this long before the master dies. Clients of the master stay connected. */
  readonly cutOffMs?: number
}

const GUARDED = { 'min-replicas-to-write': '1', 'min-replicas-max-lag': '1' }
const KINDS: readonly Kind[] = [
  { name: 'same machine', delayMs: 0 },
  { name: 'replica 1 ms away', delayMs: 1 },
  { name: 'replica 5 ms away', delayMs: 5 },
  { name: 'replica 5 ms away, min-replicas-to-write 1', delayMs: 5, settings: GUARDED },
  { name: 'replica 5 ms away, WAIT 1', delayMs: 5, wait: true },
  { name: 'cut off for 4 s', delayMs: 5, cutOffMs: 4000 },
  { name: 'cut off for 4 s, min-replicas-to-write 1', delayMs: 5, cutOffMs: 4000, settings: GUARDED },
]

/** Starts a proxy that delays data from the server by `delayMs`, and drops the delayed data when the server dies. */
async function delayed(port: number, delayMs: number): Promise<{ port: number; cut(): void; close(): void }> {
  let isCut = false
  const sockets = new Set<Socket>()
  const listener = createServer((client) => {
    const server = connect(port, '127.0.0.1')
    for (const socket of [client, server]) {
      sockets.add(socket)
      socket.on('error', () => socket.destroy())
    }
    client.on('data', (chunk) => !isCut && server.write(chunk)).on('close', () => server.destroy())
    server.on('close', () => client.destroy())
    server.on('data', (chunk) => {
      if (isCut) return
      if (delayMs === 0) client.write(chunk)
      else setTimeout(() => client.writable && client.write(chunk), delayMs)
    })
  })
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
  const address = listener.address() as { port: number }
  return {
    port: address.port,
    cut: () => {
      isCut = true
    },
    close: () => {
      for (const socket of sockets) socket.destroy()
      listener.close()
    },
  }
}

const keysOf = (room: number): string[] =>
  ['record', 'epoch', 'snapshot', 'journal', 'outcomes'].map((part) => `{room:${room}}:${part}`)

/** Returns a function that sends one WAIT for all calls in one turn. It resolves with the number of replicas that have all earlier writes. */
function sharedWait(redis: Redis): () => Promise<number> {
  let next: Promise<number> | undefined
  return () => {
    next ??= new Promise((resolve, reject) => {
      setImmediate(() => {
        next = undefined
        redis.wait(1, 1000).then(resolve, reject)
      })
    })
    return next
  }
}

/** Commits to one room until a commit fails. Returns the number of acknowledged commits. */
async function commitOn(redis: Redis, room: number, copied: () => Promise<number>): Promise<number> {
  const [epoch] = (await runScript(redis, 'claim', keysOf(room), ['0', 'n', TTL_MS, TTL_MS])) as [Buffer]
  for (let version = 0; ; version++) {
    try {
      const args = [epoch, String(version), TTL_MS, TTL_MS, ENTRY]
      if ((await runScript(redis, 'commit', keysOf(room), args)) !== 1 || (await copied()) < 1) return version
    } catch {
      return version
    }
  }
}

async function run(kind: Kind): Promise<{ acked: number; lost: number; perSecond: number }> {
  const master = await startRedisWith({ settings: { 'repl-diskless-sync-delay': '0', ...kind.settings } })
  const proxy = await delayed(Number(new URL(master.url).port), kind.delayMs)
  const replica = await startRedisWith({ settings: { replicaof: `127.0.0.1 ${proxy.port}` } })
  const redis = new Redis(master.url, {
    scripts: SCRIPTS,
    enableAutoPipelining: true,
    retryStrategy: () => null,
    enableOfflineQueue: true,
  })
  redis.on('error', () => undefined)
  try {
    await until('the replica follows', () => follows(replica))
    await until('the replica is counted', async () => (await redis.info('replication')).includes('lag=0'))
    const start = performance.now()
    const copied = kind.wait ? sharedWait(redis) : async () => 1
    const rooms = Array.from({ length: ROOMS }, (_, room) => commitOn(redis, room, copied))
    await new Promise((resolve) => setTimeout(resolve, LOAD_MS * (0.75 + Math.random() / 2)))
    if (kind.cutOffMs !== undefined) {
      proxy.cut()
      await new Promise((resolve) => setTimeout(resolve, kind.cutOffMs))
    }
    const elapsedMs = performance.now() - start
    await master.stop()
    const acked = await Promise.all(rooms)
    await asAdmin(replica.url, (redis) => redis.replicaof('NO', 'ONE'))
    const kept = await asAdmin(replica.url, (redis) =>
      Promise.all(acked.map((_, room) => redis.llen(keysOf(room)[3]!))),
    )
    const sum = (numbers: readonly number[]) => numbers.reduce((total, n) => total + n, 0)
    return {
      acked: sum(acked),
      lost: sum(acked.map((count, room) => Math.max(0, count - kept[room]!))),
      perSecond: Math.round((sum(acked) / elapsedMs) * 1000),
    }
  } finally {
    redis.disconnect()
    proxy.close()
    await Promise.all([master.close(), replica.close()])
  }
}

const runs = Number(process.argv[2] ?? 12)
for (const kind of KINDS) {
  const outcomes: Awaited<ReturnType<typeof run>>[] = []
  for (let n = 0; n < runs; n++) outcomes.push(await run(kind))
  const lost = outcomes.map((outcome) => outcome.lost).sort((a, b) => a - b)
  const speed = outcomes.map((outcome) => outcome.perSecond).sort((a, b) => a - b)
  const middle = Math.floor(runs / 2)
  process.stdout.write(
    `${kind.name}: lost median ${lost[middle]}, most ${lost.at(-1)}, runs with loss ${lost.filter((n) => n > 0).length}/${runs}, ${speed[middle]} commits/s\n`,
  )
}
