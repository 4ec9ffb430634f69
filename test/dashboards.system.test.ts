import { readFileSync } from 'node:fs'
import { defineRoom } from 'roomful'
import { type Client, connect, type Room } from 'roomful/client'
import * as v from 'valibot'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { parse } from 'yaml'
import arena from '../examples/arena/room.ts'
import { type LocalNode, sharedCluster } from './support/cluster.ts'
import { doorsSocket } from './support/cluster-player.ts'
import { selectorsIn, startPrometheus, type TestPrometheus } from './support/watch/prometheus.ts'

/** Every step replaces a long text, so that a client that stops reading falls megabytes behind. */
const ticker = defineRoom({
  type: 'ticker',
  messages: { step: { data: v.object({ n: v.number() }) } },
  sync: { rate: 0 },
  durability: 'none',
  create: () => ({ page: '' }),
  onMessage(state, input) {
    state.page = `${input.data.n} `.repeat(30_000)
  },
})

const PLAYERS = 6
/** What Grafana makes of `$__rate_interval` for such a Prometheus, at least. */
const RATE_INTERVAL = '10s'
/** Answers of control that a healthy service never gives: their series begin with the first. */
const NEVER_IN_HEALTH = 'status=~"5.."'
/** What graphs show only of a service in trouble, or of a drain: the series are there, and all are 0. */
const NOTHING_TO_SHOW = /service_(hand_over_duration_seconds|room_turns_|rooms_quarantined)/
const WITHOUT_ZEROS = / > 0$/
/** Only a process with workers has them, or what stands before the nodes. */
const OF_OTHERS = /^(service_workers|haproxy_|probe_|up\{job="haproxy")/
const DEPENDS_ON_THE_MACHINE = /_seconds_bucket|utilisation|lease_age/

interface Panel {
  readonly type: string
  readonly title: string
  readonly targets?: readonly { readonly expr: string }[]
}
interface Rule {
  readonly alert: string
  readonly expr: string
}

const read = (path: string): string => readFileSync(new URL(path, import.meta.url), 'utf8')
const dashboard = JSON.parse(read('../deploy/grafana/dashboards/roomful.json'))
const panels: readonly Panel[] = dashboard.panels
const marks: readonly { target: { expr: string } }[] = dashboard.annotations.list
const graphs = panels.filter(({ type }) => type !== 'row')
const groups: readonly { rules: Rule[] }[] = parse(read('../deploy/prometheus/alerts.yml')).groups
const rules = groups.flatMap((group) => group.rules)

const cluster = sharedCluster({ redis: 'memory' })
let nodes: LocalNode[]
let prometheus: TestPrometheus
const clients: Client[] = []
const floors: Room<typeof arena>[] = []
let began: number

beforeAll(async () => {
  nodes = await cluster.local(2, {
    rooms: [arena, ticker],
    outboxHighWaterBytes: 64 * 1024,
    outboxLimitBytes: 64 * 1024 * 1024,
  })
  prometheus = await startPrometheus({
    'roomful-control': [new URL(cluster.control.url).host],
    'roomful-node': nodes.map(({ adminUrl }) => new URL(adminUrl).host),
  })
  began = Date.now()
  await play()
})

afterAll(async () => {
  for (const client of clients) client.close()
  await prometheus?.close()
})

/** Some seconds in which players play at both nodes; one loses its connection, one is refused, and one stops reading for a while. */
async function play(): Promise<void> {
  const { projectId } = await cluster.login()
  const newToken = async () => (await cluster.call('POST', '/tokens', { project_id: projectId })).token!
  const refused = await fetch(`${cluster.control.url}/internal/key-status?project_id=${projectId}`)
  expect(refused.status).toBe(401)
  const networks = [doorsSocket(), doorsSocket()]
  const [phone, tunnel] = networks as [(typeof networks)[0], (typeof networks)[0]]
  for (let n = 0; n < PLAYERS; n++) {
    const token = await newToken()
    const options = { projectId, token, ...(n < 2 && { WebSocket: networks[n]!.WebSocket }) }
    const client = await connect(nodes[n % 2]!.wsUrl, options)
    clients.push(client)
    floors.push(await client.join<typeof arena>('arena', { key: `floor-${n % 3}` }))
  }
  await expect(connect(nodes[0]!.wsUrl, { projectId, token: 'v4.public.wrong' })).rejects.toThrow()
  await expect(clients[0]!.join('no-such-type')).rejects.toThrow()
  await expect(floors[0]!.send('hit', { target: 'nobody' })).rejects.toThrow()
  const writer = await clients[2]!.join<typeof ticker>('ticker')
  await clients[1]!.join<typeof ticker>('ticker')

  let n = 0
  const playUntil = (expr: string): Promise<void> =>
    vi.waitFor(
      async () => {
        everyoneMoves(n)
        await writer.send('step', { n: n++ })
        await newToken()
        expect(await value(expr)).toBe(1)
      },
      { timeout: 40_000, interval: 30 },
    )
  tunnel.stall()
  await playUntil(`sum(rate(service_slow_consumers_total{action="stalled"}[${RATE_INTERVAL}])) > bool 0`)
  phone.cut()
  await playUntil(`sum(rate(service_resumes_total{result="resumed"}[${RATE_INTERVAL}])) > bool 0`)
  tunnel.read()
  await playUntil('min(count_over_time(service_members[1m])) > bool 8')
}

/** A player that is not answered in time moves on. */
function everyoneMoves(n: number): void {
  for (const floor of floors) floor.send('move', { x: n, y: n }).catch(() => {})
}

/** The one value of an expression, now. */
async function value(expr: string): Promise<number | undefined> {
  const answers = await prometheus.query(expr)
  expect(answers.length, expr).toBeLessThanOrEqual(1)
  return answers[0]?.values[0]
}

/** The expression of a panel with everything chosen that can be. */
const filledIn = (expr: string): string =>
  expr.replaceAll(/\$(node|control)/g, '.+').replaceAll('$__rate_interval', RATE_INTERVAL)

describe('the dashboard', () => {
  it('shows something in every graph', async () => {
    for (const { title, targets } of graphs)
      for (const { expr } of targets ?? []) {
        const idle = NOTHING_TO_SHOW.test(expr)
        const asked = filledIn(idle ? expr.replace(WITHOUT_ZEROS, '') : expr)
        const look = async (): Promise<void> => {
          const answers = await prometheus.range(asked, began)
          const values = answers.flatMap((answer) => answer.values).filter(Number.isFinite)
          if (idle) expect(answers, `${title}: ${expr}`).not.toHaveLength(0)
          else expect(values.length, `${title}: ${expr}`).toBeGreaterThan(0)
        }
        // What has just happened may not be scraped yet.
        await vi.waitFor(look, { timeout: 60_000, interval: 500 })
      }
  })

  it('can mark what was wrong in all of them', async () => {
    for (const { target } of marks) expect(await prometheus.query(target.expr)).toEqual([])
  })

  it('shows what has happened', async () => {
    const most = async (title: string): Promise<number> => {
      const panel = graphs.find((graph) => graph.title === title)!
      const answers = await prometheus.range(filledIn(panel.targets![0]!.expr), began)
      return Math.max(...answers.flatMap((answer) => answer.values).filter(Number.isFinite))
    }
    expect(await most('Players online')).toBe(PLAYERS)
    expect(await most('Rooms')).toBe(4)
    expect(await most('Members')).toBe(PLAYERS + 2)
    expect(await most('Nodes')).toBe(2)
    expect(await most('Control processes')).toBe(1)
    expect(await most('State drift')).toBe(0)
    expect(await most('Frozen rooms')).toBe(0)
    expect(await most('Resumes that succeed')).toBe(1)
    expect(await most('Bytes that wait')).toBeGreaterThan(64 * 1024)
    expect(await most('Slow readers')).toBeGreaterThan(0)
    expect(await most('Ack latency')).toBeGreaterThan(0)
    expect(await most('Memory of Redis')).toBeGreaterThan(500_000)
  })
})

describe('the alerts', () => {
  it('ask for series that processes have', async () => {
    for (const { alert, expr } of rules)
      for (const selector of selectorsIn(expr).filter(
        (one) => !one.includes(NEVER_IN_HEALTH) && !OF_OTHERS.test(one),
      ))
        expect.soft(await prometheus.query(selector), `${alert}: ${selector}`).not.toHaveLength(0)
  })

  it('can be evaluated, and find nothing wrong but how slow a busy machine is', async () => {
    for (const { alert, expr } of rules) {
      const found = await prometheus.query(expr)
      if (!DEPENDS_ON_THE_MACHINE.test(expr)) expect.soft(found, alert).toEqual([])
    }
  })

  it('tell of a Redis that is gone while it is, and metrics go on', async () => {
    await cluster.redis.stop()
    everyoneMoves(0)
    await vi.waitFor(
      async () =>
        expect(await prometheus.alerts()).toEqual(
          expect.arrayContaining(['RoomfulStoreGone', 'RoomfulRoomsFrozen']),
        ),
      60_000,
    )
    await vi.waitFor(async () => expect(await value('sum(up)')).toBe(3), 60_000)
    await cluster.redis.start()
    await vi.waitFor(async () => expect(await value('sum(service_store_up)')).toBe(3), 60_000)
  })
})
