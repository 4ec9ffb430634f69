import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { programOr } from '../debian-package.ts'
import { type Labels, type Samples, seriesName } from './simulated-deployment.ts'

/** A firing alert. promtool compares all labels and annotations. */
interface ExpectedAlert {
  readonly exp_labels: Readonly<Record<string, string>>
  readonly exp_annotations: Readonly<Record<string, string>>
}

/** One case for `promtool test rules`. */
export interface RuleCase {
  readonly name: string
  /** Seconds between samples. */
  readonly step: number
  readonly series: ReadonlyMap<string, Samples>
  /** Firing alerts with one name. `at`: seconds. */
  readonly alerts?: readonly {
    readonly at: number
    readonly alertname: string
    readonly expected: readonly ExpectedAlert[]
  }[]
  /** Results of expressions. `at`: seconds. */
  readonly expressions?: readonly {
    readonly at: number
    readonly expr: string
    readonly expected: readonly { readonly labels: string; readonly value: number }[]
  }[]
}

/** Runs promtool with these arguments. Returns its output. Throws an error with the output if promtool fails. */
export function promtool(...args: string[]): string {
  // With fewer collections of garbage, a test of rules takes a fifth less CPU time.
  const env = { ...process.env, GOGC: '500' }
  const run = spawnSync(programOr('promtool', 'prometheus'), args, { encoding: 'utf8', env })
  if (run.error) throw run.error
  const output = `${run.stdout}${run.stderr}`
  if (run.status !== 0) throw new Error(output)
  return output
}

/** Runs `promtool test rules` on a file of rules. Throws an error with promtool's output if a case fails. */
export function testRules(rules: string, cases: readonly RuleCase[]): void {
  const folder = mkdtempSync(join(tmpdir(), 'roomful-rules-'))
  try {
    const file = basename(rules)
    copyFileSync(rules, join(folder, file))
    const step = Math.min(...cases.map((one) => one.step))
    // JSON is valid YAML, and faster to write.
    const test = { rule_files: [file], evaluation_interval: `${step}s`, tests: cases.map(toTest) }
    writeFileSync(join(folder, 'test.yml'), JSON.stringify(test))
    promtool('test', 'rules', join(folder, 'test.yml'))
  } finally {
    rmSync(folder, { recursive: true })
  }
}

const toTest = ({ name, step, series, alerts = [], expressions = [] }: RuleCase): object => ({
  name,
  interval: `${step}s`,
  input_series: [...series].map(([key, samples]) => ({
    series: key,
    values: samples.map((sample, n) => written(sample, samples[n - 1])).join(' '),
  })),
  alert_rule_test: alerts.map(({ at, alertname, expected }) => ({
    eval_time: `${at}s`,
    alertname,
    exp_alerts: expected,
  })),
  promql_expr_test: expressions.map(({ at, expr, expected }) => ({
    eval_time: `${at}s`,
    expr,
    exp_samples: expected,
  })),
})

/** Formats a sample for promtool. Prometheus marks a series that has ended as stale. */
function written(sample: number | undefined, before: number | undefined): string {
  if (sample === undefined) return before === undefined ? '_' : 'stale'
  return `${Number(sample.toPrecision(10))}`
}

/** Recorded series, into which a test plants a fault. */
export class Plot {
  readonly #series: Map<string, Samples>
  readonly #step: number
  readonly #from: number
  readonly #lasts: number

  /** In seconds: `step` between samples, start of the fault (`from`), and its duration (`lasts`). Default duration: to the end. */
  constructor(
    series: Map<string, Samples>,
    { step, from, lasts = Number.POSITIVE_INFINITY }: { step: number; from: number; lasts?: number },
  ) {
    this.#series = new Map([...series].map(([key, samples]) => [key, [...samples]]))
    this.#step = step
    this.#from = from
    this.#lasts = lasts
  }

  /** Returns the samples up to a moment, seconds. */
  until(at: number): Map<string, Samples> {
    return new Map([...this.#series].map(([key, samples]) => [key, samples.slice(0, at / this.#step + 1)]))
  }

  /** Sets gauges to a value. */
  set(name: string, labels: Labels, value: number): void {
    this.#spoil(name, labels, (sample, since) => (since < this.#lasts ? value : sample))
  }

  /** Raises the rate of counters. */
  raise(name: string, labels: Labels, perSecond: number): void {
    this.#spoil(name, labels, (sample, since) => sample! + Math.min(since, this.#lasts) * perSecond)
  }

  /** Ends series. */
  end(name: string, labels: Labels = {}): void {
    this.#spoil(name, labels, () => undefined)
  }

  /** Sets a gauge to the values in turn, each for a minute, repeatedly. */
  alternate(name: string, labels: Labels, values: readonly number[]): void {
    this.#spoil(name, labels, (_, since) => values[Math.floor(since / 60) % values.length])
  }

  /** Makes all observations of a histogram slower than `bound`, seconds. */
  slow(name: string, labels: Labels, bound: number): void {
    for (const key of this.#matching(`${name}_bucket`, labels)) {
      const le = Number(/le="([^"]+)"/.exec(key)![1]!.replace('+Inf', 'Infinity'))
      if (le <= bound) this.#stop(this.#series.get(key)!)
    }
  }

  /** Stops a counter for the duration of the fault. After it, the counter continues from the same value. */
  #stop(samples: Samples): void {
    const [first, next] = [this.#from, this.#from + this.#lasts].map((at) => Math.round(at / this.#step))
    const [stopped, later] = [samples[first!], samples[next!]]
    for (let n = first!; n < samples.length; n++)
      samples[n] = n < next! ? stopped : stopped! + (samples[n]! - later!)
  }

  #spoil(name: string, labels: Labels, by: (sample: number | undefined, since: number) => Samples[number]) {
    for (const key of this.#matching(name, labels)) {
      const samples = this.#series.get(key)!
      for (let n = this.#from / this.#step; n < samples.length; n++)
        samples[n] = by(samples[n], n * this.#step - this.#from)
    }
  }

  /** Returns the names of all series that have these labels. Throws if there is none, because the fault would have no effect. */
  #matching(name: string, labels: Labels): string[] {
    const found = [...this.#series.keys()].filter(
      (key) =>
        key.startsWith(`${name}{`) &&
        Object.entries(labels).every(([label, value]) => key.includes(`${label}=${JSON.stringify(value)}`)),
    )
    if (found.length === 0) throw new Error(`nothing was recorded of ${seriesName(name, labels)}`)
    return found
  }
}

/** A fault and its alert. */
export interface PlantedFault {
  readonly alert: string
  readonly plant: (plot: Plot) => void
  /** Longest time from the fault to the alert, seconds. */
  readonly within: number
  /** Labels of the alert, without severity. */
  readonly labels: Labels
  /** Value in the description of the alert. */
  readonly value?: string
  /** Other alerts that fire for the same fault. */
  readonly others?: readonly string[]
}

const NODE = { job: 'roomful-node', instance: 'node-1:9100' }
const CONTROL = { job: 'roomful-control', instance: 'control-1:3000' }
const NODES = { job: 'roomful-node' }
const CONTROLS = { job: 'roomful-control' }
const REDIS = { server: 'redis:6379' }
const ARENA = { ...NODES, room_type: 'arena' }
const RANKED = { ...NODES, room_type: 'ranked' }
const CALLS = { ...CONTROLS, route: '/projects/:id/rooms/:type/:key/calls/:name' }

const HAPROXY = { job: 'haproxy', instance: 'balancer:8404' }
const ADDRESS = { job: 'public-address', instance: 'https://play.example.com/' }

type Plant = PlantedFault['plant']

const spoil =
  (how: 'set' | 'raise' | 'slow') =>
  (name: string, labels: Labels, value: number): Plant =>
  (plot) =>
    plot[how](name, labels, value)
const set = spoil('set')
const raise = spoil('raise')
const slow = spoil('slow')

/** The fields of a `PlantedFault`, in order. */
type Row = readonly [
  alert: string,
  plant: Plant,
  within: number,
  labels: Labels,
  value?: string | undefined,
  others?: readonly string[],
]

/** One fault for each alert. */
const ROWS: readonly Row[] = [
  ['RoomfulNodesDown', set('up', NODE, 0), 60, NODES, '50%', ['RoomfulNodeDown']],
  ['RoomfulNodeDown', set('up', NODE, 0), 60, NODE, undefined, ['RoomfulNodesDown']],
  // Prometheus has no targets, so it has no series of nodes.
  [
    'RoomfulNoNode',
    (plot) => {
      for (const name of ['up', 'service_node_info', 'service_connections']) plot.end(name, NODES)
    },
    90,
    {},
  ],
  [
    'RoomfulProcessRestarts',
    (plot) => plot.alternate('service_process_start_time_seconds', CONTROL, [600, 660, 720, 780]),
    180,
    CONTROL,
    '4',
  ],
  ['RoomfulWorkersMissing', set('service_workers', NODE, 1), 120, NODE, '1'],
  ['RoomfulNodesDisagree', set('service_nodes_alive', NODE, 1), 60, NODES, '1'],
  ['RoomfulDrainDoesNotEnd', set('service_draining', NODE, 1), 120, NODE],
  ['RoomfulPlayersGone', set('service_connections', NODES, 100), 120, NODES, '2.5%'],
  [
    'RoomfulHandshakesFail',
    raise('service_handshakes_total', { ...NODES, result: 'overloaded' }, 2),
    300,
    NODES,
    '24.48%',
  ],
  [
    'RoomfulJoinsFail',
    raise('service_joins_total', { ...NODES, result: 'room_unavailable' }, 1),
    300,
    NODES,
    '19.23%',
  ],
  [
    'RoomfulResumesFail',
    raise('service_resumes_total', { ...NODES, result: 'failed' }, 2),
    600,
    NODES,
    '50.62%',
  ],
  [
    'RoomfulSeatsLost',
    raise('service_room_resumes_total', { ...NODES, result: 'lost' }, 1),
    600,
    NODES,
    '32.48%',
  ],
  [
    'RoomfulReadersClosed',
    raise('service_slow_consumers_total', { ...NODES, action: 'closed' }, 0.5),
    900,
    NODES,
    '7.575%',
  ],
  ['RoomfulOutboxesFill', set('service_outbox_bytes', NODE, 4000 * 100 * 1024), 300, NODE, '100ki'],
  ['RoomfulRoomsFrozen', set('service_rooms_frozen', NODE, 12), 60, NODE, '12'],
  [
    'RoomfulClaimsFail',
    raise('service_claims_total', { ...NODE, result: 'unavailable' }, 0.1),
    180,
    NODES,
    '0.10',
  ],
  [
    'RoomfulProjectFull',
    raise('service_claims_total', { ...NODE, result: 'project_full' }, 0.1),
    240,
    NODES,
    '0.10',
  ],
  ['RoomfulLeaseNotRenewed', set('service_lease_age_seconds', NODE, 176), 30, NODE, '2m 56s'],
  ['RoomfulWritesFenced', raise('service_fenced_writes_total', NODE, 0.01), 360, NODES, '4'],
  [
    'RoomfulPeersLoseMessages',
    raise('service_peer_faults_total', { ...NODES, fault: 'gap' }, 0.5),
    420,
    { ...NODES, fault: 'gap' },
    '1.00',
  ],
  [
    'RoomfulRoomQuarantined',
    raise('service_rooms_quarantined_total', { ...NODE, room_type: 'arena' }, 0.01),
    60,
    ARENA,
    '1',
  ],
  [
    'RoomfulNoticesDead',
    raise('service_notice_attempts_total', { ...NODE, result: 'dead' }, 0.01),
    60,
    NODES,
    '1',
  ],
  ['RoomfulNoticesLate', set('service_notices_oldest_seconds', NODE, 400), 90, NODES, '400'],
  [
    'RoomfulStateDrifts',
    raise('service_resyncs_total', { ...NODE, room_type: 'arena', reason: 'checksum' }, 0.01),
    60,
    ARENA,
    '1',
  ],
  [
    'RoomfulHandlerRefused',
    set(
      'service_handlers_refused',
      { ...NODE, project_id: 'prj_a', room_type: 'arena', hook: 'onMessage', message_type: 'put' },
      1_800_000_000,
    ),
    60,
    { ...ARENA, project_id: 'prj_a', hook: 'onMessage', message_type: 'put' },
    '2027-01-15 08:00:00 +0000 UTC',
  ],
  [
    'RoomfulRoomTurnStuck',
    raise('service_room_turns_stuck_total', { ...NODE, room_type: 'arena', hook: 'onMessage' }, 0.01),
    60,
    { ...ARENA, hook: 'onMessage' },
    '1',
  ],
  [
    'RoomfulRoomTurnsSlow',
    raise('service_room_turns_slow_total', { ...NODE, room_type: 'arena', hook: 'onTick' }, 1),
    420,
    { ...ARENA, hook: 'onTick' },
    '1.0',
  ],
  [
    'RoomfulRoomLogicFails',
    raise('service_room_errors_total', { ...ARENA, code: 'room_logic_failed' }, 500),
    420,
    ARENA,
    '20.63%',
  ],
  [
    'RoomfulRoomSavesFail',
    raise('service_room_saves_total', { ...NODE, room_type: 'arena', outcome: 'failed' }, 0.1),
    900,
    ARENA,
    '0.10',
  ],
  [
    'RoomfulRoomMigrationsFail',
    raise('service_room_migrations_total', { ...NODE, room_type: 'arena', outcome: 'failed' }, 0.1),
    60,
    ARENA,
    '0.02',
  ],
  [
    'RoomfulRoomLoadsFail',
    raise('service_room_loads_total', { ...NODE, room_type: 'arena', outcome: 'timed_out' }, 0.1),
    300,
    ARENA,
    '0.10',
  ],
  [
    'RoomfulPlacingFails',
    raise('service_placements_total', { ...NODES, result: 'failed' }, 0.2),
    300,
    NODES,
    '16.67%',
  ],
  ['RoomfulListsFail', raise('service_directory_failed_polls_total', NODE, 0.1), 240, NODE, '0.10'],
  [
    'RoomfulRowsNotWritten',
    raise('service_room_rows_total', { ...NODE, room_type: 'arena', outcome: 'failed' }, 0.1),
    420,
    { ...ARENA, outcome: 'failed' },
    '0.10',
  ],
  ['RoomfulQueueStuck', set('service_queue_oldest_seconds', NODE, 400), 120, RANKED, '6m 40s'],
  [
    'RoomfulQueueRulesFail',
    raise('service_queue_failures_total', { ...NODE, room_type: 'ranked', reason: 'fits' }, 0.1),
    240,
    { ...RANKED, reason: 'fits' },
    '0.10',
  ],
  // Two players wait, and each match of them fails: about one a minute.
  [
    'RoomfulQueueRulesFail',
    raise('service_queue_failures_total', { ...NODE, room_type: 'ranked', reason: 'room_logic' }, 0.02),
    300,
    { ...RANKED, reason: 'room_logic' },
    '0.02',
  ],
  [
    'RoomfulMatchesFail',
    raise('service_queue_failures_total', { ...NODE, room_type: 'ranked', reason: 'room' }, 0.5),
    300,
    RANKED,
    '20%',
  ],
  // The queue has never made a match, so it has no counter of matches.
  [
    'RoomfulMatchesFail',
    (plot) => {
      plot.end('service_queue_matches_total')
      plot.raise('service_queue_failures_total', { ...NODE, room_type: 'ranked', reason: 'room' }, 0.1)
    },
    300,
    RANKED,
    '100%',
  ],
  ['RoomfulAcksSlow', slow('service_message_ack_duration_seconds', NODES, 0.25), 420, NODES, '992.5ms'],
  ['RoomfulDeliverySlow', slow('service_message_delivery_duration_seconds', ARENA, 1), 420, ARENA, '2.485s'],
  ['RoomfulHandshakesSlow', slow('service_handshake_duration_seconds', NODES, 2.5), 420, NODES, '2.5s'],
  ['RoomfulJoinsSlow', slow('service_join_duration_seconds', NODES, 2.5), 420, NODES, '2.5s'],
  ['RoomfulTimersLate', slow('service_room_timer_lateness_seconds', NODES, 1), 420, NODES, '2.425s'],
  ['RoomfulEventLoopLate', slow('service_event_loop_delay_seconds', NODE, 0.1), 420, NODE, '248.5ms'],
  ['RoomfulNodeBusy', set('service_event_loop_utilisation_ratio', NODE, 0.95), 600, NODE, '95%'],
  ['RoomfulNodeOverloaded', set('service_overloaded', NODE, 1), 90, NODE],
  ['RoomfulNodeFull', set('service_sessions', NODE, 19_000), 300, NODE, '95%'],
  ['RoomfulRoomsFull', set('service_rooms', NODE, 9500), 300, NODE, '95%'],
  ['RoomfulFilesRunOut', set('service_process_open_fds', NODE, 60_000), 300, NODE, '91.55%'],
  ['RoomfulLogLost', raise('service_log_lines_dropped_total', NODE, 1), 180, NODE, '180'],
  [
    'RoomfulRoomsFarAway',
    raise('service_room_traffic_total', { ...NODES, what: 'update', way: 'bus' }, 900),
    600,
    NODES,
    '55.06%',
  ],
  ['RoomfulStoreGone', set('service_store_up', CONTROL, 0), 30, CONTROLS],
  // The store answers and refuses writes.
  [
    'RoomfulStoreGone',
    set('service_lease_age_seconds', NODES, 20),
    30,
    NODES,
    undefined,
    ['RoomfulLeaseNotRenewed'],
  ],
  ['RoomfulClockWrong', set('service_clock_offset_seconds', CONTROL, -8), 120, CONTROL, '-8s'],
  ['RoomfulStoreDataLost', set('service_store_data_lost', CONTROL, 1), 30, CONTROLS],
  [
    'RoomfulStoreFails',
    raise('service_store_command_failures_total', { ...NODE, failure: 'store_full' }, 30),
    420,
    { ...NODE, failure: 'store_full' },
    '9.091%',
  ],
  [
    'RoomfulStoreSlow',
    slow('service_store_command_duration_seconds', CONTROLS, 0.1),
    420,
    CONTROLS,
    '248.5ms',
  ],
  ['RoomfulRedisFillsUp', set('service_redis_used_memory_bytes', REDIS, 435.2e6), 300, REDIS, '85%'],
  ['RoomfulRedisFull', set('service_redis_used_memory_bytes', REDIS, 506.88e6), 60, REDIS, '99%'],
  ['RoomfulRedisEvicts', raise('service_redis_evicted_keys_total', REDIS, 1), 60, REDIS, '60'],
  ['RoomfulReplicaMissing', set('service_redis_good_replicas', REDIS, 1), 300, REDIS, '1'],
  ['RoomfulRedisRestartLosesData', set('service_redis_restart_loses_data', REDIS, 1), 30, REDIS],
  ['RoomfulControlDown', set('up', CONTROL, 0), 60, CONTROL],
  ['RoomfulNoControl', (plot) => plot.end('service_control_info'), 90, {}],
  [
    'RoomfulControlFails',
    raise('service_http_requests_total', { ...CONTROLS, route: '/tokens', status: '503' }, 1),
    300,
    CONTROLS,
    '19.24%',
  ],
  [
    'RoomfulCallersRefused',
    raise('service_http_requests_total', { ...CONTROLS, route: '/tokens', status: '401' }, 2),
    420,
    { ...CONTROLS, route: '/tokens' },
    '33.5%',
  ],
  [
    'RoomfulControlSlow',
    slow('service_http_request_duration_seconds', { ...CONTROLS, route: '/tokens' }, 1),
    420,
    CONTROLS,
    '2.485s',
  ],
  [
    'RoomfulCallsFail',
    // Each status stays below the 5 %.
    (plot) => {
      for (const status of ['500', '503', '504'])
        plot.raise('service_http_requests_total', { ...CALLS, status }, 0.2)
    },
    300,
    CONTROLS,
    '10.34%',
  ],
  ['RoomfulCallsSlow', slow('service_http_request_duration_seconds', CALLS, 1), 420, CONTROLS, '2.425s'],
  [
    'RoomfulLoginKeysUnfetched',
    raise('service_jwks_fetches_total', { ...NODE, result: 'failed' }, 0.1),
    420,
    NODES,
  ],
  [
    'RoomfulKeysUnchecked',
    raise('service_key_checks_total', { ...NODE, result: 'foreign' }, 0.1),
    420,
    { ...NODES, result: 'foreign' },
    '0.10',
  ],
  ['RoomfulBalancerGone', set('up', HAPROXY, 0), 60, { job: 'haproxy' }],
  [
    'RoomfulBalancerHasNoNode',
    set('haproxy_backend_active_servers', { ...HAPROXY, proxy: 'nodes' }, 0),
    60,
    { job: 'haproxy', proxy: 'nodes' },
  ],
  ['RoomfulPublicAddressFails', set('probe_success', ADDRESS, 0), 120, ADDRESS],
  [
    'RoomfulCertificateEnds',
    set('probe_ssl_earliest_cert_expiry', ADDRESS, 7 * 86_400),
    600,
    ADDRESS,
    '6d 23h 40m 0s',
  ],
]

export const PLANTED: readonly PlantedFault[] = ROWS.map(([alert, plant, within, labels, value, others]) => ({
  alert,
  plant,
  within,
  labels,
  ...(value !== undefined && { value }),
  ...(others && { others }),
}))

/** Plants a fail-over of Redis: Redis does not answer for a while, and then everything continues. */
export function plantFailOver(plot: Plot): void {
  for (const labels of [NODES, CONTROLS]) {
    plot.set('service_store_up', labels, 0)
    plot.raise('service_store_command_failures_total', { ...labels, failure: 'store_unreachable' }, 50)
    plot.slow('service_store_command_duration_seconds', labels, 2.5)
  }
  plot.set('service_rooms_frozen', NODES, 800)
  plot.set('service_lease_age_seconds', NODES, 20)
  plot.raise('service_claims_total', { ...NODES, result: 'unavailable' }, 5)
  plot.raise('service_handshakes_total', { ...NODES, result: 'overloaded' }, 4)
  plot.raise('service_joins_total', { ...NODES, result: 'room_unavailable' }, 4)
  plot.raise('service_placements_total', { ...NODES, result: 'failed' }, 1)
  plot.raise('service_directory_failed_polls_total', NODES, 1)
  plot.raise('service_room_rows_total', { ...NODES, outcome: 'not_written' }, 10)
  plot.raise('service_queue_failures_total', { ...NODES, reason: 'room' }, 0.5)
  plot.raise('service_key_checks_total', { ...NODES, result: 'unreachable' }, 0.5)
  plot.raise('service_peer_faults_total', { ...NODES, fault: 'unpublished' }, 50)
  plot.raise('service_http_requests_total', { ...CONTROLS, route: '/tokens', status: '503' }, 8)
  plot.raise('service_http_requests_total', { ...CALLS, status: '503' }, 8)
  for (const of of ['message_ack', 'commit', 'handshake', 'join'])
    plot.slow(`service_${of}_duration_seconds`, NODES, 2.5)
}
