import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from 'vitest'
import { LocalCluster } from '../../deploy/local/local-cluster.ts'
import { callControl, runtimeOf } from '../support/calls.ts'
import { type Program, startScript } from '../support/program.ts'
import { testedClients } from './clients.ts'

/** Messages of each player, one every 20 ms. */
const MESSAGES = Number(process.env.CLIENTS_MESSAGES ?? 4000)
const FAULTS = ['kill', 'drain', 'kill', 'drain'] as const
/** Messages that the room counts between a fault and the next. */
const BETWEEN = 600
const KEY = 'clients'
const PATIENT = { timeout: 180_000, interval: 100 }
const HOST = '127.0.0.1'
/** Starts one player of a language. */
type Start = (env: Record<string, string>) => Program
/** The languages that run here. */
const LANGUAGES: [string, Start][] = [
  ['TypeScript', (env) => startScript('test/clients/count.ts', [], env)],
  ...testedClients()
    .filter(({ runs }) => runs)
    .map((client): [string, Start] => [client.name, (env) => client.start('count', env)]),
]

/** What a player prints at its end. */
interface Seen {
  readonly sent: number
  readonly acknowledged: number
  readonly state: { readonly count: number }
  readonly checksum: number
  /** Whole states that it has asked for, or that have arrived without a question. */
  readonly resyncs: number
}

let cluster: LocalCluster
let projectId = ''
beforeAll(async () => {
  const { PATH, HOME, TMPDIR } = process.env
  const env = { PATH, HOME, TMPDIR, DRAIN_SECONDS: '1' }
  cluster = await LocalCluster.prepare({ nodes: 3, controls: 1, balancer: 'auto', env })
  await cluster.start()
  projectId = (await control('/projects', { name: 'clients' })).id!
})
afterAll(async () => {
  cluster?.abandon()
  await cluster?.close()
})

const control = (path: string, body: object) =>
  callControl(cluster.controlUrl, 'POST', path, body, {
    authorization: `Bearer ${cluster.secrets.operatorToken}`,
  })

/** Starts a backend that issues tokens: `POST {sub}`. Returns its address. */
async function startTokens(): Promise<string> {
  const server = createServer(async (request, response) => {
    const { sub } = JSON.parse(await text(request)) as { sub: string }
    const { token } = await control('/tokens', { project_id: projectId, sub })
    response.end(JSON.stringify({ project_id: projectId, token }))
  })
  server.listen(0, HOST)
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return `http://${HOST}:${(server.address() as AddressInfo).port}/`
}

/** Starts a player. Resolves to what it has seen. */
async function play(name: string, start: Start, env: Record<string, string>): Promise<Seen> {
  const player = start({ ...env, ROOMFUL_NAME: name })
  onTestFinished(() => void player.child.kill())
  const code = await player.ended
  const output = player.output().trim()
  tell(`${name}: ${output}`)
  if (code !== 0) throw new Error(`${name} ended with ${code}`)
  return JSON.parse(output.slice(output.lastIndexOf('\n') + 1)) as Seen
}

const tell = (line: string): void => void process.stdout.write(`${line}\n`)

/** Returns the name of the node that runs the room, and the count there. */
async function look(): Promise<{ owner: string; count: number }> {
  const { nodes, secrets } = cluster
  const found = await Promise.allSettled(
    nodes.map(async ({ adminUrl, child }) => {
      const { rooms } = await runtimeOf(adminUrl, secrets.internalToken, 2000)
      const room = rooms.find(({ room_id: roomId }) => roomId === `counter:${KEY}`)
      return room && { owner: child.name, room }
    }),
  )
  const owned = found.flatMap((one) => (one.status === 'fulfilled' && one.value ? [one.value] : []))
  const [latest] = owned.sort((one, other) => other.room.epoch - one.room.epoch)
  const { count = 0 } = (latest?.room.state ?? {}) as { count?: number }
  return { owner: latest?.owner ?? '', count }
}

it('two players of each language count each message once, through two kills and two drains of the owner', async () => {
  const total = 2 * LANGUAGES.length * MESSAGES
  const env = {
    ROOMFUL_URL: cluster.wsUrl,
    ROOMFUL_TOKEN_URL: await startTokens(),
    ROOMFUL_KEY: KEY,
    ROOMFUL_MESSAGES: String(MESSAGES),
    ROOMFUL_TOTAL: String(total),
  }
  const playing = Promise.all(
    LANGUAGES.flatMap(([language, start]) =>
      ['json', 'msgpack'].map((codec, index) =>
        play(`${language}-${index + 1}`, start, { ...env, ROOMFUL_CODEC: codec }),
      ),
    ),
  )
  playing.catch(() => undefined)
  let next = BETWEEN
  for (const fault of FAULTS) {
    const { owner, count } = await vi.waitFor(async () => {
      const seen = await look()
      expect(seen.count).toBeGreaterThanOrEqual(next)
      return seen
    }, PATIENT)
    // Otherwise, the fault meets a room in which nobody counts.
    expect(count + BETWEEN).toBeLessThan(total)
    tell(`${count} of ${total} counted: ${fault} of ${owner}, the owner`)
    const child = cluster.child(owner)
    await (fault === 'kill' ? child.kill() : child.endWithin(30_000))
    await child.start()
    next = (await look()).count + BETWEEN
  }
  const seen = await playing
  for (const one of seen)
    expect(one).toMatchObject({ sent: MESSAGES, acknowledged: MESSAGES, state: { count: total }, resyncs: 0 })
  expect(new Set(seen.map(({ checksum }) => checksum)).size).toBe(1)
}, 300_000)
