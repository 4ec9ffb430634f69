import { LATENCY_BUCKETS } from '../../../shared/metrics.ts'
import type { Random } from '../../../shared/random.ts'

/** Options of a recording. */
interface DeploymentShape {
  readonly nodes: number
  readonly controls: number
  readonly seconds: number
  /** Seconds between scrapes. */
  readonly step: number
  /** By the number of a node, from 1. */
  readonly restarts?: Readonly<Record<number, Restart>>
  /** Bounds of the histograms. Fewer bounds make a test faster. */
  readonly buckets?: readonly number[]
  readonly random: Random
}

/** Sessions of a node with average load. */
const SESSIONS = 4000
/** Average time between two lost connections of a session, seconds. */
const DROPS_EVERY = 2000
const ROOM_TYPES = ['arena', 'chess']
const STARTED_BEFORE = 86_400
/** Route of control for calls of backends to rooms. */
const CALLS = '/projects/:id/rooms/:type/:key/calls/:name'

/**
 * Records a deployment with players: handshakes, joins, lost connections, refused moves, a few bad tokens and slow phones. It has every metric
 * of the alerts. In a restart, the node drains, its players resume at other nodes, and some of their requests take longer. The values are
 * those of a real restart.
 */
export function simulatedDeployment(shape: DeploymentShape): Map<string, Samples> {
  const recording = new Recording(shape, shape.random)
  const nodes = Array.from(
    { length: shape.nodes },
    (_, n): Process => ({
      labels: { job: 'roomful-node', instance: `node-${n + 1}:9100` },
      restart: shape.restarts?.[n + 1],
    }),
  )
  const alive = (at: number): number => nodes.filter((node) => isUp(node, at)).length
  /** Players that move per second: a draining node moves its players within ten seconds. */
  const moving = (at: number): number =>
    nodes.filter(({ restart }) => restart && at >= restart.drainsAt && at < restart.goneAt).length *
    (SESSIONS / 10)
  for (const node of nodes) new SimulatedNode(recording, node, shape, alive, moving).record()
  for (let n = 1; n <= shape.controls; n++) recordControl(recording, n, shape)
  recordFront(recording, shape)
  return recording.series
}

class SimulatedNode {
  readonly #recording: Recording
  readonly #process: Process
  readonly #random: Random
  readonly #buckets: readonly number[]
  readonly #alive: (at: number) => number
  readonly #moving: (at: number) => number

  constructor(
    recording: Recording,
    process: Process,
    { random, buckets = LATENCY_BUCKETS }: DeploymentShape,
    alive: (at: number) => number,
    moving: (at: number) => number,
  ) {
    this.#recording = recording
    this.#process = process
    this.#random = random
    this.#buckets = buckets
    this.#alive = alive
    this.#moving = moving
  }

  record(): void {
    recordProcess(this.#recording, this.#process, this.#random, 300, this.#buckets)
    this.#players()
    this.#rooms()
    this.#finding()
    this.#cluster()
    this.#latency()
  }

  #draining(at: number): boolean {
    const { restart } = this.#process
    return restart !== undefined && at >= restart.drainsAt && at < restart.goneAt
  }

  /** Sessions per second that arrive from a draining node. */
  #arriving = (at: number): number => (this.#draining(at) ? 0 : this.#moving(at) / this.#alive(at))

  #players(): void {
    const resumed = (at: number) => SESSIONS / DROPS_EVERY + this.#arriving(at)
    this.#counts('service_handshakes_total', 'result', {
      welcome: 4,
      resumed,
      unauthenticated: 0.05,
      token_expired: 0.05,
      handshake_timeout: 0.02,
      resume_failed: 0.05,
      overloaded: 0,
      draining: (at) => (this.#draining(at) ? 20 : 0),
    })
    this.#counts('service_resumes_total', 'result', { resumed, failed: 0.05 })
    this.#counts('service_room_resumes_total', 'result', { frames: resumed, resync: 0.1, lost: 0.01 })
    this.#counts('service_joins_total', 'result', {
      joined: 4,
      room_full: 0.2,
      room_unavailable: (at) => (this.#moving(at) > 0 ? 0.1 : 0),
      overloaded: 0,
      room_logic_failed: 0,
    })
    this.#counts('service_slow_consumers_total', 'action', { stalled: 0.05, closed: 0.005 })
    this.#counts('service_jwks_fetches_total', 'result', { ok: 0.01, failed: 0 })
    this.#counts('service_key_checks_total', 'result', {
      ok: 0.2,
      unreachable: 0,
      refused: 0,
      foreign: 0,
      busy: 0,
    })
    this.#gauge('service_connections', () => SESSIONS)
    this.#gauge('service_sessions', () => SESSIONS + 100)
    this.#gauge('service_max_sessions', () => 20_000)
    this.#gauge('service_outbox_bytes', () => 2_000_000 * this.#random.float())
  }

  #rooms(): void {
    this.#gauge('service_slowdown_ratio', () => 1)
    this.#gauge('service_overloaded', () => 0)
    this.#count('service_inputs_dropped_total', {}, 0)
    this.#gauge('service_rooms', () => 800)
    this.#gauge('service_notices_oldest_seconds', () => 0)
    this.#count('service_notice_attempts_total', { result: 'dead' }, 0)
    this.#gauge('service_max_rooms', () => 10_000)
    this.#gauge('service_rooms_frozen', () => 0)
    for (const roomType of ROOM_TYPES) {
      this.#count('service_messages_applied_total', { room_type: roomType }, 2000)
      this.#count('service_room_errors_total', { room_type: roomType, code: 'room_logic_failed' }, 20)
      this.#count('service_room_errors_total', { room_type: roomType, code: 'room_full' }, 0.2)
      this.#count('service_room_turns_stuck_total', { room_type: roomType, hook: 'onMessage' }, 0)
      const handler = { project_id: 'prj_a', room_type: roomType, hook: 'onMessage', message_type: 'put' }
      this.#gauge('service_handlers_refused', () => 0, handler)
      this.#count('service_room_turns_slow_total', { room_type: roomType, hook: 'onTick' }, 0.01)
      for (const outcome of ['saved', 'failed', 'timed_out'])
        this.#count('service_room_saves_total', { room_type: roomType, outcome }, outcome === 'saved' ? 5 : 0)
      this.#count('service_room_migrations_total', { room_type: roomType, outcome: 'failed' }, 0)
      for (const outcome of ['loaded', 'none', 'failed', 'timed_out'])
        this.#count(
          'service_room_loads_total',
          { room_type: roomType, outcome },
          outcome === 'loaded' ? 1 : 0,
        )
      for (const outcome of ['written', 'not_written', 'failed'])
        this.#count(
          'service_room_rows_total',
          { room_type: roomType, outcome },
          outcome === 'written' ? 10 : 0,
        )
      this.#count('service_inputs_shed_total', { room_type: roomType, how: 'dropped' }, 0)
      this.#count('service_resyncs_total', { room_type: roomType, reason: 'checksum' }, 0)
      this.#count('service_rooms_quarantined_total', { room_type: roomType }, 0)
      this.#count('service_resyncs_total', { room_type: roomType, reason: 'sequence' }, 0.01)
      this.#count('service_resyncs_total', { room_type: roomType, reason: 'stalled' }, 0.05)
      this.#histogram(
        'service_message_delivery_duration_seconds',
        { room_type: roomType },
        2000,
        () => 0.028,
        0.5,
      )
    }
  }

  /** Lists of rooms, `joinOrCreate` and a queue. */
  #finding(): void {
    this.#counts('service_placements_total', 'result', { listed: 0.8, new: 0.2, failed: 0 })
    this.#count('service_directory_failed_polls_total', {}, 0)
    const queue = { room_type: 'ranked' }
    this.#gauge('service_queue_tickets', () => 30, queue)
    this.#gauge('service_queue_oldest_seconds', () => 60 * this.#random.float(), queue)
    this.#count('service_queue_matches_total', queue, 1)
    for (const reason of ['entry', 'near', 'fits', 'options', 'shard', 'room', 'room_logic'])
      this.#count('service_queue_failures_total', { ...queue, reason }, 0)
  }

  #cluster(): void {
    const moved = (at: number): number => (this.#draining(at) ? 0 : this.#moving(at) > 0 ? 80 : 0.3)
    this.#gauge('service_nodes_alive', this.#alive)
    this.#gauge('service_workers', () => 2)
    this.#gauge('service_workers_wanted', () => 2)
    this.#gauge('service_draining', (at) => Number(this.#draining(at)))
    this.#gauge('service_lease_ttl_seconds', () => 2)
    this.#gauge('service_lease_age_seconds', () => 0.55 * this.#random.float())
    this.#counts('service_claims_total', 'result', {
      claimed: moved,
      taken_over: 0,
      elsewhere: 0.02,
      rate_limited: 0.01,
      project_full: 0,
      too_many_rooms: 0,
      unavailable: 0,
    })
    this.#count('service_fenced_writes_total', {}, (at) => (this.#moving(at) > 0 ? 0.1 : 0))
    this.#gauge('service_addressed', () => 1)
    for (const what of ['input', 'update']) {
      this.#count('service_room_traffic_total', { what, way: 'local' }, 400)
      this.#count('service_room_traffic_total', { what, way: 'bus' }, 40)
    }
    this.#counts('service_peer_faults_total', 'fault', {
      unpublished: 0,
      unreadable: 0,
      gap: (at) => (this.#moving(at) > 0 ? 0.2 : 0),
    })
  }

  #latency(): void {
    const busier = (calm: number) => (at: number) => (this.#moving(at) > 0 ? 4 * calm : calm)
    this.#gauge(
      'service_event_loop_utilisation_ratio',
      (at) => (this.#moving(at) > 0 ? 0.7 : 0.3) + 0.15 * this.#random.float(),
    )
    this.#histogram('service_event_loop_delay_seconds', {}, 20, busier(0.0012), 0.7)
    this.#histogram('service_message_ack_duration_seconds', {}, 1000, busier(0.008), 0.6)
    this.#histogram('service_room_timer_lateness_seconds', {}, 50, busier(0.002), 0.8)
    this.#histogram('service_commit_duration_seconds', {}, 500, busier(0.0005), 0.8)
    this.#histogram(
      'service_handshake_duration_seconds',
      {},
      (at) => 4 + this.#arriving(at),
      busier(0.006),
      0.8,
    )
    this.#histogram('service_join_duration_seconds', {}, 4, busier(0.004), 0.9)
  }

  #gauge(name: string, read: (at: number) => number, labels: Readonly<Record<string, string>> = {}): void {
    this.#recording.gauge(this.#process, name, labels, read)
  }

  #count(name: string, labels: Readonly<Record<string, string>>, perSecond: Rate): void {
    this.#recording.counter(this.#process, name, labels, rateOf(perSecond))
  }

  /** A counter for each value of a label. */
  #counts(name: string, label: string, rates: Readonly<Record<string, Rate>>): void {
    for (const [value, rate] of Object.entries(rates)) this.#count(name, { [label]: value }, rate)
  }

  #histogram(
    name: string,
    labels: Readonly<Record<string, string>>,
    rate: Rate,
    median: (at: number) => number,
    spread: number,
  ): void {
    const perSecond = rateOf(rate)
    this.#recording.histogram(this.#process, name, labels, {
      buckets: this.#buckets,
      perSecond,
      median,
      spread,
    })
  }
}

/** A rate per second: constant, or a function of the time. */
type Rate = number | ((at: number) => number)

const rateOf = (rate: Rate): ((at: number) => number) => (typeof rate === 'number' ? () => rate : rate)

/** Records the metrics that every process has. */
function recordProcess(
  recording: Recording,
  process: Process,
  random: Random,
  commands: number,
  buckets: readonly number[],
): void {
  const { restart } = process
  const info = process.labels.job === 'roomful-node' ? 'service_node_info' : 'service_control_info'
  const startedAt = (at: number) => (restart && at >= restart.backAt ? restart.backAt - 5 : -STARTED_BEFORE)
  recording.scraped(process, 'up', (at) => Number(isUp(process, at)))
  recording.gauge(process, info, { version: '1.0.0' }, () => 1)
  recording.gauge(process, 'service_process_start_time_seconds', {}, startedAt)
  recording.gauge(process, 'service_process_open_fds', {}, () => 4100 + Math.floor(100 * random.float()))
  recording.gauge(process, 'service_process_max_fds', {}, () => 65_536)
  recording.counter(process, 'service_log_lines_dropped_total', {}, () => 0)
  recording.gauge(process, 'service_store_up', {}, () => 1)
  recording.gauge(process, 'service_clock_offset_seconds', {}, () => 0.2 * random.float() - 0.1)
  recording.counter(process, 'service_store_commands_total', { operation: 'commit' }, () => commands)
  recording.gauge(process, 'service_store_data_lost', {}, () => 0)
  for (const failure of ['store_unreachable', 'store_full', 'store_refused'])
    recording.counter(process, 'service_store_command_failures_total', { failure }, () => 0)
  recording.histogram(
    process,
    'service_store_command_duration_seconds',
    {},
    { buckets, perSecond: () => commands, median: () => 0.0004, spread: 0.8 },
  )
}

function recordControl(
  recording: Recording,
  n: number,
  { random, buckets = LATENCY_BUCKETS }: DeploymentShape,
): void {
  const process: Process = { labels: { job: 'roomful-control', instance: `control-${n}:3000` } }
  recordProcess(recording, process, random, 20, buckets)
  const server = 'redis:6379'
  recording.gauge(process, 'service_redis_used_memory_bytes', { server }, (at) => 120e6 + 1000 * at)
  recording.gauge(process, 'service_redis_max_memory_bytes', { server }, () => 512e6)
  recording.gauge(process, 'service_redis_evicted_keys_total', { server }, () => 0)
  recording.gauge(process, 'service_redis_good_replicas', { server }, () => 2)
  recording.gauge(process, 'service_redis_restart_loses_data', { server }, () => 0)
  const requests = [
    ['POST', '/tokens', '201', 4],
    ['POST', '/tokens', '401', 0.02],
    ['POST', '/tokens', '503', 0.01],
    ['GET', '/internal/keys/:key_id', '200', 0.2],
    ['GET', '/projects/:id', '404', 0.02],
    ['POST', CALLS, '200', 5],
    ['POST', CALLS, '409', 0.2],
    ['POST', CALLS, '500', 0],
    ['POST', CALLS, '503', 0],
    ['POST', CALLS, '504', 0],
    ['GET', '/readyz', '200', 0.2],
    ['GET', '/readyz', '503', 0],
    ['GET', '/metrics', '200', 0.1],
  ] as const
  for (const [method, route, status, rate] of requests)
    recording.counter(process, 'service_http_requests_total', { method, route, status }, () => rate)
  for (const route of ['/tokens', CALLS, '/metrics'])
    recording.histogram(
      process,
      'service_http_request_duration_seconds',
      { method: 'POST', route },
      { buckets, perSecond: () => 4, median: () => 0.004, spread: 0.8 },
    )
}

/** Records haproxy and the probe of the public address. The certificate is valid for 60 days. */
function recordFront(recording: Recording, { nodes, controls }: DeploymentShape): void {
  const haproxy: Process = { labels: { job: 'haproxy', instance: 'balancer:8404' } }
  recording.scraped(haproxy, 'up', () => 1)
  for (const [proxy, servers] of [
    ['nodes', nodes],
    ['controls', controls],
  ] as const)
    recording.gauge(haproxy, 'haproxy_backend_active_servers', { proxy }, () => servers)
  const probe: Process = { labels: { job: 'public-address', instance: 'https://play.example.com/' } }
  recording.gauge(probe, 'probe_success', {}, () => 1)
  recording.gauge(probe, 'probe_ssl_earliest_cert_expiry', {}, () => 60 * 86_400)
}

/** Value at each scrape. Undefined: no value. */
export type Samples = (number | undefined)[]

export type Labels = Readonly<Record<string, string>>

/** A restart of one process, in seconds of the recording: it drains, ends, and starts with counters at 0. */
export interface Restart {
  readonly drainsAt: number
  readonly goneAt: number
  readonly backAt: number
}

/** Labels of a scraped process, and its restart. */
export interface Process {
  readonly labels: Labels
  readonly restart?: Restart | undefined
}

/** True if a process runs at a moment. */
const isUp = ({ restart }: Process, at: number): boolean =>
  !restart || at < restart.goneAt || at >= restart.backAt

/** Returns the name of a series in the format of Prometheus, `name{a="b"}`. */
export const seriesName = (name: string, labels: Labels): string =>
  `${name}{${Object.entries(labels)
    .map(([label, value]) => `${label}=${JSON.stringify(value)}`)
    .join(',')}}`

/** Series of Prometheus with one sample every `step` seconds. */
class Recording {
  readonly series = new Map<string, Samples>()
  readonly #moments: readonly number[]
  readonly #step: number
  readonly #random: Random

  constructor({ seconds, step }: { seconds: number; step: number }, random: Random) {
    this.#step = step
    this.#moments = Array.from({ length: Math.floor(seconds / step) + 1 }, (_, n) => n * step)
    this.#random = random
  }

  /** Adds a gauge of a process, with the value of `read` while the process runs. */
  gauge(process: Process, name: string, labels: Labels, read: (at: number) => number): void {
    this.#add(process, name, labels, (at) => (isUp(process, at) ? read(at) : undefined))
  }

  /** Adds a gauge of Prometheus about a process. It also has values while the process does not run. */
  scraped(process: Process, name: string, read: (at: number) => number): void {
    this.#add(process, name, {}, read)
  }

  /** Adds a counter that grows by about `perSecond` from a random start. */
  counter(process: Process, name: string, labels: Labels, perSecond: (at: number) => number): void {
    let count = Math.floor(this.#random.float() * 1e6)
    this.#add(process, name, labels, (at) => {
      if (!isUp(process, at)) {
        count = 0
        return undefined
      }
      count += this.#some(perSecond(at))
      return count
    })
  }

  /**
   * Adds a histogram of log-normally distributed durations. `median`: seconds. `spread`: standard deviation of the logarithm. With 0.7, the 99th
   * percentile is five times the median.
   */
  histogram(
    process: Process,
    name: string,
    labels: Labels,
    shape: {
      readonly buckets: readonly number[]
      readonly perSecond: (at: number) => number
      readonly median: (at: number) => number
      readonly spread: number
    },
  ): void {
    const bounds = [...shape.buckets, Number.POSITIVE_INFINITY]
    const counts = bounds.map(() => 0)
    const rows: Samples[] = bounds.map(() => [])
    for (const at of this.#moments) {
      if (!isUp(process, at)) counts.fill(0)
      else {
        const observed = this.#some(shape.perSecond(at))
        for (const [n, bound] of bounds.entries())
          counts[n]! += observed * normal(Math.log(bound / shape.median(at)) / shape.spread)
      }
      for (const [n, row] of rows.entries()) row.push(isUp(process, at) ? counts[n] : undefined)
    }
    for (const [n, bound] of bounds.entries()) {
      const le = Number.isFinite(bound) ? `${bound}` : '+Inf'
      const nameOfBucket = seriesName(`${name}_bucket`, { ...labels, ...process.labels, le })
      this.series.set(nameOfBucket, rows[n]!)
    }
  }

  #add(process: Process, name: string, labels: Labels, read: (at: number) => number | undefined): void {
    this.series.set(seriesName(name, { ...labels, ...process.labels }), this.#moments.map(read))
  }

  /** Number of events in one step, with random noise. */
  #some(perSecond: number): number {
    return perSecond * this.#step * (0.75 + this.#random.float() / 2)
  }
}

/** The standard normal distribution function, to 1e-4 (logistic approximation by Bowling et al., 2009). */
const normal = (x: number): number => 1 / (1 + Math.exp(-(0.07056 * x ** 3 + 1.5976 * x)))
