import { setTimeout } from 'node:timers/promises'
import { type Client, connect, type Room } from 'roomful/client'
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from 'vitest'
import { WebSocket } from 'ws'
import type counter from '../examples/counter/room.ts'
import { CLOSE } from '../shared/protocol/error-codes.ts'
import { callControl, metricOf, runtimeOf } from './support/calls.ts'
import { examplesFolder, runProgram } from './support/program.ts'
import { type RedisServer, startRedis } from './support/redis-server.ts'

const INTERNAL_TOKEN = 'internal-token-of-the-worker-tests'
const PLAYERS = 12
const ROOMS = 4
/** Pause between an ack and the next message of a player. */
const PAUSE_MS = 50
const WITHIN_MS = 120_000

let redis: RedisServer
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis.close())

/** Starts control with two workers and a node with `workers` workers, with one Redis. */
async function deployment(workers: number) {
  const common = { REDIS_URL: redis.url, KEY_PREFIX: `workers-${Math.random()}:`, INTERNAL_TOKEN }
  const control = runProgram(['control', '--workers', '2'], { ...common, CONTROL_PORT: '0' })
  const [, controlUrl = ''] = await control.said(/control ready: api (http:\/\/[\d.:]+)/)
  const env = {
    ...common,
    CONTROL_URL: controlUrl,
    ROOMS_DIR: examplesFolder(),
    NODE_ID: 'machine',
    WS_PORT: '0',
    ADMIN_PORT: '0',
    DRAIN_SECONDS: '2',
    // Long, so that a busy machine does not lose the lease.
    NODE_LEASE_MS: '5000',
    SESSION_MESSAGES_PER_SECOND: '1000',
  }
  const node = runProgram(['dataplane', `--workers=${workers}`], env)
  const [, wsUrl = '', adminUrl = ''] = await node.said(
    /dataplane ready: websocket (ws:\/\/[\d.:]+), admin (http:\/\/[\d.:]+)/,
  )
  const post = (path: string, body: object) => callControl(controlUrl, 'POST', path, body)
  const { id: projectId = '' } = await post('/projects', { name: 'workers' })
  const player = async (): Promise<Player> => {
    const { token = '' } = await post('/tokens', { project_id: projectId, sub: `p-${Math.random()}` })
    return new Player(wsUrl, projectId, token)
  }
  return { control, control_url: controlUrl, node, admin_url: adminUrl, player }
}

/** Increments a counter, and waits for the ack of each message before the next one. */
class Player {
  /** Number of sockets that could not be opened. */
  refused = 0
  /** Close codes of sockets. */
  readonly closed: number[] = []
  acked = 0
  readonly lost: string[] = []
  readonly #connecting: () => Promise<Client>
  #client: Client | undefined
  #room: Room<typeof counter> | undefined
  #playing = true
  #played: Promise<void> = Promise.resolve()

  constructor(url: string, projectId: string, token: string) {
    const player = this
    class Counted extends WebSocket {
      constructor(address: string, protocols: string[]) {
        super(address, protocols)
        this.once('error', () => {
          player.refused += 1
        })
        this.once('close', (code) => player.closed.push(code))
      }
    }
    this.#connecting = () =>
      connect(url, { projectId, token, WebSocket: Counted, connectTimeoutMs: WITHIN_MS })
  }

  async play(key: string): Promise<void> {
    this.#client = await this.#connecting()
    onTestFinished(() => this.#client?.close())
    this.#client.onConnectionChange((status, reason) => {
      if (status === 'closed') this.lost.push(reason?.code ?? 'no reason')
    })
    const room = await this.#client.join<typeof counter>('counter', { key })
    this.#room = room
    const add = async (): Promise<void> => {
      while (this.#playing) {
        await room.send('inc', { by: 1 })
        this.acked += 1
        await setTimeout(PAUSE_MS)
      }
    }
    this.#played = add().catch((error: Error) => void this.lost.push(error.message))
  }

  get count(): number {
    return this.#room?.state.count ?? 0
  }

  /** Stops, and resolves when all messages are acknowledged. */
  async rest(): Promise<void> {
    this.#playing = false
    await this.#played
  }

  /** Connects and closes. */
  async visit(): Promise<void> {
    ;(await this.#connecting()).close()
  }
}

async function playing(player: () => Promise<Player>): Promise<Player[]> {
  const players = await Promise.all(Array.from({ length: PLAYERS }, player))
  await Promise.all(players.map((one, i) => one.play(`r${i % ROOMS}`)))
  return players
}

/** Expects that each acknowledged message was applied once, and that no session was lost. */
async function expectNothingLost(players: readonly Player[]): Promise<void> {
  await Promise.all(players.map((one) => one.rest()))
  expect(players.flatMap(({ lost }) => lost)).toEqual([])
  const acked = Array.from({ length: ROOMS }, (_, room) =>
    players.filter((_, i) => i % ROOMS === room).reduce((sum, one) => sum + one.acked, 0),
  )
  await vi.waitFor(
    () => expect(players.map(({ count }) => count)).toEqual(players.map((_, i) => acked[i % ROOMS])),
    WITHIN_MS,
  )
}

it('SIGHUP replaces the workers of a node without a lost message or a refused client', async () => {
  const { node, player, admin_url: adminUrl } = await deployment(2)
  const names = async () => {
    const answer = await fetch(`${adminUrl}/metrics`)
    return [...(await answer.text()).matchAll(/node_info\{node_id="([^"]+)"/g)].map(([, name]) => name).sort()
  }
  // The node leaves out the metrics of a worker that answers late.
  const areNamed = (...all: string[]) => vi.waitFor(async () => expect(await names()).toEqual(all), WITHIN_MS)
  await areNamed('machine-1', 'machine-2')
  const players = await playing(player)
  const { rooms, sessions } = await runtimeOf(adminUrl, INTERNAL_TOKEN)
  expect([rooms.length, sessions.length]).toEqual([ROOMS, PLAYERS])

  // New clients connect all the time, with pauses, so that the new workers get CPU time.
  let replaced = false
  const visitors: Player[] = []
  const visits = (async () => {
    while (!replaced) {
      const visitor = await player()
      visitors.push(visitor)
      await visitor.visit()
      await setTimeout(PAUSE_MS)
    }
  })()
  const before = players.map(({ acked }) => acked)
  node.child.kill('SIGHUP')
  await node.said(/the workers are replaced"/)
  replaced = true
  await visits
  await areNamed('machine-1', 'machine-3')
  // Also players whose worker has ended.
  await vi.waitFor(
    () =>
      expect(players.map(({ acked, lost }, i) => (acked > before[i]! ? 'plays' : lost))).toEqual(
        players.map(() => 'plays'),
      ),
    WITHIN_MS,
  )
  await expectNothingLost(players)
  expect([...players, ...visitors].reduce((sum, { refused }) => sum + refused, 0)).toBe(0)
  expect(visitors.flatMap(({ closed }) => closed)).not.toContain(CLOSE.draining)

  node.child.kill('SIGTERM')
  expect(await node.ended).toBe(0)
})

it('a killed worker is started again, and its rooms continue', async () => {
  const { node, player, admin_url: adminUrl } = await deployment(2)
  const players = await playing(player)
  const [, pid = ''] = await node.said(/"worker":2,"pid":(\d+)/)
  process.kill(Number(pid), 'SIGKILL')
  await node.said(/"worker":2,.*a worker ended unexpectedly and is started again/)
  await vi.waitFor(
    async () => expect(await metricOf(adminUrl, 'service_workers{worker="none"}')).toBe(2),
    WITHIN_MS,
  )
  await expectNothingLost(players)
})

it('each control worker answers with the metrics of all', async () => {
  const { control, control_url: controlUrl } = await deployment(1)
  for (let i = 0; i < 4; i++) {
    const text = await (await fetch(`${controlUrl}/metrics`, { headers: { connection: 'close' } })).text()
    for (const worker of ['1', '2', 'none'])
      expect(text).toContain(`service_process_resident_memory_bytes{worker="${worker}"}`)
  }
  control.child.kill('SIGHUP')
  await control.said(/the workers are replaced"/)
  expect((await fetch(`${controlUrl}/healthz`)).status).toBe(200)
})
