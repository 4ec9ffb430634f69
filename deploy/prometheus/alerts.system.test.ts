import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { cp, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { json } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { parse } from 'yaml'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { findOrInstall } from '../../test/support/debian-package.ts'
import { startCommand } from '../../test/support/program.ts'
import { freePort, until } from '../../test/support/redis-server.ts'
import { newFolder } from '../../test/support/run-folder.ts'
import {
  PLANTED,
  type PlantedFault,
  Plot,
  plantFailOver,
  promtool,
  type RuleCase,
  testRules,
} from '../../test/support/watch/promtool.ts'
import {
  type Restart,
  type Samples,
  seriesName,
  simulatedDeployment,
} from '../../test/support/watch/simulated-deployment.ts'
import { findProgram } from '../local/machine.ts'

interface Alert {
  readonly alert: string
  readonly expr: string
  readonly for?: string
  readonly labels: { readonly severity: string }
  readonly annotations: {
    readonly summary: string
    readonly description: string
    readonly runbook_url: string
  }
}

const pathOf = (name: string): string => fileURLToPath(new URL(name, import.meta.url))
const RULES = pathOf('alerts.yml')
const groups: readonly { rules: Alert[] }[] = parse(readFileSync(RULES, 'utf8')).groups
const alerts = groups.flatMap(({ rules }) => rules)

/** Time at which the faults start, in seconds. */
const FROM = 600
const STEP = 30
/** Time limit: promtool uses seconds of CPU, and the machine may be busy. */
const PATIENCE_MS = 400_000
const EVER_FIRED = 'count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1h]))'
const FIRING = 'group by (alertname) (ALERTS{alertstate="firing"})'

/** Returns a duration such as `1m30s` in seconds. Undefined: 0. */
const seconds = (duration: string | undefined): number => {
  const [, minutes = '0', rest = '0'] = /^(?:(\d+)m)?(?:(\d+)s)?$/.exec(duration ?? '0s') ?? []
  return 60 * Number(minutes) + Number(rest)
}

describe('prometheus.yml', () => {
  it('is valid for Prometheus, with and without its optional parts', async () => {
    const folder = await newFolder()
    await cp(RULES, join(folder, 'alerts.yml'))
    const plain = readFileSync(pathOf('prometheus.yml'), 'utf8')
    const full = plain.replaceAll(/^#(?:alertmanager|probe) /gm, '')
    for (const [text, jobs] of [
      [plain, ['roomful-control', 'roomful-node', 'haproxy']],
      [full, ['roomful-control', 'roomful-node', 'haproxy', 'public-address']],
    ] as const) {
      await writeFile(join(folder, 'prometheus.yml'), text)
      const said = promtool('check', 'config', join(folder, 'prometheus.yml'))
      expect(said).toContain(`${alerts.length} rules found`)
      const { scrape_configs: scraped, alerting } = parse(text)
      expect(scraped.map(({ job_name: name }: { job_name: string }) => name)).toEqual(jobs)
      expect(alerting !== undefined).toBe(text === full)
    }
    const [{ params }] = parse(full).scrape_configs.slice(-1)
    expect(Object.keys(parse(readFileSync(pathOf('blackbox.yml'), 'utf8')).modules)).toEqual(params.module)
  })
})

describe('the dashboard', () => {
  it('has queries that Prometheus can parse', async () => {
    const { panels } = JSON.parse(readFileSync(pathOf('../grafana/dashboards/roomful.json'), 'utf8'))
    const expressions = panels.flatMap(({ targets = [] }: { targets?: { expr: string }[] }) =>
      targets.map(({ expr }) => expr.replaceAll('$__rate_interval', '1m')),
    )
    const rules = expressions.map((expr: string, n: number) => ({ record: `panel_${n}`, expr }))
    const file = join(await newFolder(), 'panels.yml')
    await writeFile(file, JSON.stringify({ groups: [{ name: 'panels', rules }] }))
    expect(promtool('check', 'rules', file)).toContain(`${expressions.length} rules found`)
  })
})

describe('alertmanager.yml', () => {
  const { route, receivers, inhibit_rules: rules } = parse(readFileSync(pathOf('alertmanager.yml'), 'utf8'))
  const named = (matchers: readonly string[]): string[] =>
    matchers.flatMap((matcher) => /^alertname=~?"(.+)"$/.exec(matcher)![1]!.split('|'))

  it('sends critical alerts to the pager, and others as tickets', () => {
    const [critical] = route.routes
    expect([critical.matchers, critical.receiver, route.receiver]).toEqual([
      ['severity="critical"'],
      'pager',
      'tickets',
    ])
    expect(receivers.map(({ name }: { name: string }) => name)).toEqual(['pager', 'tickets'])
  })

  it('has inhibition rules only with existing alerts', () => {
    for (const { source_matchers: sources, target_matchers: targets } of rules) {
      for (const name of [...named(sources), ...named(targets)])
        expect(alerts.map(({ alert }) => alert)).toContain(name)
      // A warning must never suppress a page.
      for (const name of named(sources))
        expect(alerts.find(({ alert }) => alert === name)!.labels.severity).toBe('critical')
    }
  })

  it('leaves one alert when Redis is down', { timeout: PATIENCE_MS }, () => {
    const healthy = simulatedDeployment({
      nodes: 3,
      controls: 2,
      seconds: FROM + 900,
      step: STEP,
      buckets: [0.1, 0.25, 1, 2.5],
      random: new SeededRandom(7),
    })
    const plot = new Plot(healthy, { step: STEP, from: FROM })
    plantFailOver(plot)
    const ending = new Plot(healthy, { step: STEP, from: FROM, lasts: 480 })
    plantFailOver(ending)
    const keptBack = rules
      .filter(({ source_matchers: sources }: { source_matchers: string[] }) =>
        named(sources).includes('RoomfulStoreGone'),
      )
      .flatMap(({ target_matchers: targets }: { target_matchers: string[] }) => named(targets))
    const firing = (names: string) =>
      `count(count by (alertname) (ALERTS{alertstate="firing",alertname${names}}))`
    const critical = `alertstate="firing",severity="critical",alertname=~"${keptBack.join('|')}"`
    const gone = 'ALERTS{alertstate="firing",alertname="RoomfulStoreGone"}'
    testRules(RULES, [
      {
        name: 'no Redis',
        step: STEP,
        series: plot.until(FROM + 600),
        expressions: [
          {
            at: FROM + 600,
            expr: `${firing(`=~"${keptBack.join('|')}"`)} > bool 8`,
            expected: [{ labels: '{}', value: 1 }],
          },
          {
            at: FROM + 600,
            expr: `count by (alertname) (ALERTS{alertstate="firing",alertname!~"${keptBack.join('|')}"} ) > bool 0`,
            expected: [{ labels: '{alertname="RoomfulStoreGone"}', value: 1 }],
          },
        ],
      },
      {
        name: 'Redis comes back',
        step: STEP,
        series: ending.until(FROM + 900),
        expressions: [
          { at: FROM + 900, expr: `ALERTS{${critical}} or ${gone}`, expected: [] },
          {
            at: FROM + 900,
            expr: `count_over_time((ALERTS{${critical}} unless on () ${gone})[900s:${STEP}s])`,
            expected: [],
          },
        ],
      },
    ])
  })

  it('pages a second outage within the group_wait, and no alert that follows from the first', {
    timeout: 60_000,
  }, async () => {
    const { pages, send } = await startAlertmanager()
    await send('RoomfulStoreGone', 'RoomfulRoomsFrozen', 'RoomfulPlayersGone')
    await expect.poll(pages, ONE_GROUP).toEqual([['RoomfulPlayersGone'], ['RoomfulStoreGone']])
    await send('RoomfulRedisRestartLosesData', 'RoomfulJoinsFail')
    const paged = [['RoomfulPlayersGone'], ['RoomfulRedisRestartLosesData'], ['RoomfulStoreGone']]
    await expect.poll(pages, ONE_GROUP).toEqual(paged)
  })

  it('pages the same alert of another process, and its end, within half a minute', {
    timeout: 60_000,
  }, async () => {
    const { pages, send, end } = await startAlertmanager()
    await send('RoomfulRoomsFrozen')
    await expect.poll(pages, ONE_GROUP).toEqual([['RoomfulRoomsFrozen']])
    await send('RoomfulRoomsFrozen', 'RoomfulRoomsFrozen node-2')
    const both = ['RoomfulRoomsFrozen', 'RoomfulRoomsFrozen']
    await expect.poll(pages, ONE_GROUP).toEqual([['RoomfulRoomsFrozen'], both])
    await end('RoomfulRoomsFrozen', 'RoomfulRoomsFrozen node-2')
    await expect.poll(pages, ONE_GROUP).toEqual([[], ['RoomfulRoomsFrozen'], both])
  })
})

/** Time limit for one message to the pager: some times the 30 s of alertmanager.yml, which are 1 s in `startAlertmanager`. */
const ONE_GROUP = { timeout: 10_000, interval: 100 }

/**
 * Starts Alertmanager with alertmanager.yml, 30 times as fast and with a pager. `pages`: the alerts that fire in each message, sorted. `send`
 * and `end`: critical alerts, each as its name and, optionally, its instance.
 */
async function startAlertmanager() {
  const messages: string[][] = []
  const pager = createServer(async (request, response) => {
    const { alerts: told } = (await json(request)) as {
      alerts: { status: string; labels: { alertname: string } }[]
    }
    messages.push(told.filter(({ status }) => status === 'firing').map(({ labels }) => labels.alertname))
    response.end()
  })
  await once(pager.listen(0, '127.0.0.1'), 'listening')
  const config = parse(readFileSync(pathOf('alertmanager.yml'), 'utf8'))
  const faster = (text: string) => `${(1000 * seconds(text)) / 30}ms`
  for (const route of [config.route, ...config.route.routes])
    for (const name of ['group_wait', 'group_interval']) if (route[name]) route[name] = faster(route[name])
  const { port } = pager.address() as AddressInfo
  config.receivers[0].webhook_configs = [{ url: `http://127.0.0.1:${port}/` }]
  const folder = await newFolder()
  await writeFile(join(folder, 'alertmanager.yml'), JSON.stringify(config))
  const program = findOrInstall('alertmanager', ['prometheus-alertmanager'], () =>
    findProgram(['alertmanager', 'prometheus-alertmanager'], process.env.PATH),
  )
  const address = `127.0.0.1:${await freePort()}`
  const { child } = startCommand(program, [
    `--config.file=${join(folder, 'alertmanager.yml')}`,
    `--storage.path=${folder}`,
    `--web.listen-address=${address}`,
    '--cluster.listen-address=',
  ])
  onTestFinished(() => {
    child.kill('SIGKILL')
    pager.close()
  })
  const post = (names: readonly string[], endsAt?: string) =>
    fetch(`http://${address}/api/v2/alerts`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(
        names.map((name) => {
          const [alertname, instance = 'node-1'] = name.split(' ')
          return { labels: { alertname, instance, severity: 'critical' }, endsAt }
        }),
      ),
    })
  await until('Alertmanager', async () => (await fetch(`http://${address}/-/ready`)).ok, 30_000)
  return {
    pages: () => [...messages].sort(),
    send: (...names: string[]) => post(names),
    end: (...names: string[]) => post(names, new Date().toISOString()),
  }
}

describe('every alert', () => {
  it('has a severity, a meaning and a link to the documentation', () => {
    const page = readFileSync(new URL('../../docs/runbooks.md', import.meta.url), 'utf8')
    const anchors = [...page.matchAll(/^## (.+)$/gm)].map(([, heading]) => slug(heading!))
    for (const { alert, labels, annotations } of alerts) {
      expect(['warning', 'critical'], alert).toContain(labels.severity)
      expect(annotations.summary, alert).toMatch(/^[A-Z].*\.$/)
      const [file, anchor] = annotations.runbook_url.split('#')
      expect(file, alert).toBe('docs/runbooks.md')
      expect(anchors, alert).toContain(anchor)
    }
  })

  it('has a fault below that causes it', () => {
    expect([...new Set(PLANTED.map(({ alert }) => alert))]).toEqual(alerts.map(({ alert }) => alert))
  })
})

describe('a fault', { timeout: PATIENCE_MS }, () => {
  const healthy = simulatedDeployment({
    nodes: 2,
    controls: 1,
    seconds: FROM + 900,
    step: STEP,
    buckets: [0.1, 0.25, 1, 2.5],
    // Without noise, so that the descriptions are predictable.
    random: { float: () => 0.5, bytes: (length) => new Uint8Array(length) },
  })

  it('of each kind causes its alert in time, and no other', () => {
    const cases = PLANTED.map((fault): RuleCase => {
      const rule = alerts.find(({ alert }) => alert === fault.alert)!
      const plot = new Plot(healthy, { step: STEP, from: FROM })
      fault.plant(plot)
      const fires = {
        exp_labels: { ...fault.labels, ...rule.labels },
        exp_annotations: { ...rule.annotations, description: told(rule, fault) },
      }
      return {
        name: fault.alert,
        step: STEP,
        series: plot.until(FROM + fault.within),
        alerts: [
          { at: FROM + Math.max(0, seconds(rule.for) - STEP), alertname: fault.alert, expected: [] },
          { at: FROM + fault.within, alertname: fault.alert, expected: [fires] },
        ],
        expressions: [
          {
            at: FROM + fault.within,
            expr: FIRING,
            expected: [fault.alert, ...(fault.others ?? [])].map((alertname) => ({
              labels: `{alertname="${alertname}"}`,
              value: 1,
            })),
          },
        ],
      }
    })
    testRules(RULES, cases)
  })
})

/** Each case is one hour with players. */
describe('no alert is sent', { timeout: PATIENCE_MS }, () => {
  const STEP_OF_HOUR = 30
  /** First sample with a difference. */
  const FROM_SAMPLE = 1200 / STEP_OF_HOUR
  const record = (restarts: Record<number, Restart> = {}): Map<string, Samples> =>
    simulatedDeployment({
      nodes: 3,
      controls: 2,
      seconds: 3600,
      step: STEP_OF_HOUR,
      restarts,
      random: new SeededRandom(7),
    })
  const quiet = (name: string, series: Map<string, Samples>): RuleCase => ({
    name,
    step: STEP_OF_HOUR,
    series,
    expressions: [{ at: 3600, expr: EVER_FIRED, expected: [] }],
  })
  const spoilt = (lasts: number, plant: (plot: Plot) => void): Map<string, Samples> => {
    const plot = new Plot(record(), { step: STEP_OF_HOUR, from: 1200, lasts })
    plant(plot)
    return plot.until(3600)
  }

  it('for nodes that are replaced one after the other', () => {
    const replaced = (drainsAt: number): Restart => ({
      drainsAt,
      goneAt: drainsAt + 10,
      backAt: drainsAt + 40,
    })
    const restarts = { 1: replaced(1200), 2: replaced(1260), 3: replaced(1320) }
    testRules(RULES, [quiet('rolling restart', record(restarts))])
  })

  it('for a node that autoscaling adds and removes', () => {
    // Discovery does not list it before and after, so it is not scraped then.
    const there = record({ 3: { drainsAt: 2400, goneAt: 2410, backAt: Number.POSITIVE_INFINITY } })
    const up = seriesName('up', { job: 'roomful-node', instance: 'node-3:9100' })
    if (!there.has(up)) throw new Error(`${up} was not recorded`)
    for (const [key, samples] of there)
      if (key.includes('instance="node-3:9100"'))
        there.set(
          key,
          samples.map((sample, n) => (n < FROM_SAMPLE || n * STEP_OF_HOUR >= 2410 ? undefined : sample)),
        )
    for (const instance of ['node-1:9100', 'node-2:9100']) {
      const alive = there.get(seriesName('service_nodes_alive', { job: 'roomful-node', instance }))!
      for (let n = 0; n < FROM_SAMPLE; n++) alive[n] = 2
    }
    testRules(RULES, [quiet('autoscaling', there)])
  })

  it('for a short failover of Redis', () => {
    testRules(RULES, [quiet('fail-over', spoilt(20, plantFailOver))])
  })

  it('for an outage that ended before its rates were high for three minutes', () => {
    const failing = (plot: Plot) => {
      const nodes = { job: 'roomful-node' }
      plot.raise('service_handshakes_total', { ...nodes, result: 'overloaded' }, 4)
      plot.raise('service_joins_total', { ...nodes, result: 'room_unavailable' }, 4)
      plot.raise('service_placements_total', { ...nodes, result: 'failed' }, 1)
      const tokens = { job: 'roomful-control', route: '/tokens', status: '503' }
      plot.raise('service_http_requests_total', tokens, 8)
    }
    testRules(RULES, [
      quiet('half a minute', spoilt(30, failing)),
      quiet('one and a half minutes', spoilt(90, failing)),
      quiet('two and a half minutes', spoilt(150, failing)),
    ])
  })

  it('for a client that tries many tokens', () => {
    const guess = (plot: Plot) =>
      plot.raise('service_handshakes_total', { job: 'roomful-node', result: 'unauthenticated' }, 2)
    testRules(RULES, [quiet('stranger', spoilt(1200, guess))])
  })
})

/** Returns the description of an alert, filled in. */
const told = ({ annotations }: Alert, { labels, value = '' }: PlantedFault): string =>
  annotations.description
    .replace(/{{ \$labels\.(\w+) }}/g, (_, label: string) => labels[label]!)
    .replace(/{{[^}]*\$value[^}]*}}/g, value)

/** Returns the anchor of a heading on GitHub. */
const slug = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-')
