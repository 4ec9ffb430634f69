import { execFileSync } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { describe, it } from 'vitest'
import { BALANCERS, type BalancerKind, Deployment } from './support/deployment.ts'
import { IdleClients } from './support/idle-clients.ts'
import { until } from './support/redis-server.ts'

/**
 * Number of silent websockets through each load balancer. `npm run balancer:idle` runs this file with 10,000, and prints the memory that they
 * need.
 */
const DEFAULT_SOCKETS = 500
const sockets = Number(process.env.BALANCER_IDLE_SOCKETS ?? DEFAULT_SOCKETS)

/** Longer with many clients, because some answer a ping late on a busy machine. */
const HEARTBEAT_SECONDS = sockets > DEFAULT_SOCKETS ? 6 : 4
const ROOM = 'ledger-none:idle'
const MEMBERS = 5
const CLIENT_PROCESSES = 2
/** File descriptors of a process in addition to those of websockets. */
const OTHER_DESCRIPTORS = 500
/** Largest share of a process, because the kernel distributes connections randomly over the processes of a balancer. */
const UNEVEN = 1.1

const output = execFileSync('sh', ['-c', 'ulimit -Hn'], { encoding: 'utf8' }).trim()
const limit = output === 'unlimited' ? Number.POSITIVE_INFINITY : Number(output)

/** Number of processes that a balancer needs for all sockets. nginx has a worker for each core. haproxy is one process with threads. */
const processesOf = (kind: BalancerKind): number =>
  kind === 'nginx' ? 1 : Math.ceil((sockets * 2 * UNEVEN) / (limit - OTHER_DESCRIPTORS))
const needed = (kind: BalancerKind): number => {
  const sharing = kind === 'nginx' ? availableParallelism() : processesOf(kind)
  return Math.ceil((sockets * 2 * UNEVEN) / sharing) + OTHER_DESCRIPTORS
}

describe.concurrent.each(BALANCERS)('%s', (kind) => {
  if (needed(kind) > limit)
    process.stderr.write(
      `not tested: ${sockets} websockets through ${kind} need ${needed(kind)} file descriptors, and ulimit -n allows ${limit}\n`,
    )
  it.skipIf(needed(kind) > limit)(
    `keeps ${sockets} silent websockets open for more than two heartbeats (needs ${needed(kind)} file descriptors of ${limit})`,
    async ({ annotate, expect, onTestFinished }) => {
      const deployment = await Deployment.start({
        balancer: kind,
        balancerProcesses: processesOf(kind),
        nodeEnv: { HEARTBEAT_SECONDS: String(HEARTBEAT_SECONDS), MAX_SESSIONS_PER_SUB: '0' },
      })
      onTestFinished(() => deployment.close())
      const { balancer } = deployment
      const login = await deployment.login()
      const roomProcesses = deployment.nodePids
      const before = { balancer: rss(balancer.pids()), nodes: rss(roomProcesses) }

      const began = performance.now()
      const crowd = { ...login, wsUrl: balancer.wsUrl, sockets, members: MEMBERS, roomId: ROOM }
      const clients = await IdleClients.connect(crowd, CLIENT_PROCESSES)
      onTestFinished(() => clients.close())
      const connectedMs = performance.now() - began
      expect(await clients.report()).toMatchObject({ welcome: sockets, lost: 0 })

      await new Promise((resolve) => setTimeout(resolve, HEARTBEAT_SECONDS * 2250))
      expect(await clients.report()).toMatchObject({ welcome: sockets, lost: 0 })
      const after = { balancer: rss(balancer.pids()), nodes: rss(roomProcesses) }

      const { heard } = await clients.report()
      const player = await deployment.player(login, ROOM)
      await player.add()
      await until('the members have received the event', async () => {
        expect(await clients.report()).toEqual({ welcome: sockets, lost: 0, heard: heard + MEMBERS })
        return true
      })

      const figures = {
        balancer: kind,
        sockets,
        connected_per_second: Math.round((sockets / connectedMs) * 1000),
        balancer_mb_before: megabytes(before.balancer),
        balancer_kb_per_socket: (after.balancer - before.balancer) / sockets / 1024,
        nodes_mb_before: megabytes(before.nodes),
        nodes_mb_per_10k_sessions: (megabytes(after.nodes - before.nodes) / sockets) * 10_000,
      }
      const line = JSON.stringify(figures, (_, value) =>
        typeof value === 'number' ? Math.round(value * 10) / 10 : value,
      )
      process.stdout.write(`${line}\n`)
      await annotate(line)
    },
  )
})

const megabytes = (bytes: number): number => bytes / 1024 / 1024

/** Returns the sum of the processes' resident memory, bytes. */
const rss = (pids: readonly number[]): number =>
  execFileSync('ps', ['-o', 'rss=', '-p', pids.join(',')], { encoding: 'utf8' })
    .trim()
    .split('\n')
    .reduce((sum, kilobytes) => sum + Number(kilobytes) * 1024, 0)
