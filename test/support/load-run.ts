import type { ServerSecond } from '../../loadtest/metrics.ts'
import {
  type Counts,
  noCounts,
  type Percentiles,
  type RunResult,
  type Second,
} from '../../loadtest/result.ts'
import type { Random } from '../../shared/random.ts'

/** Options of `madeUpResult`. */
interface RunShape {
  readonly seconds: number
  readonly nodes: number
  readonly clients: number
  /** Replaces parts of the result. */
  readonly but?: Partial<RunResult>
}

/**
 * Returns an invented result of a load test: a ramp, a time of load in which a node restarts, and an end. Equal options and an equal seed give
 * an equal result.
 */
export function madeUpResult({ seconds, nodes, clients, but }: RunShape, random: Random): RunResult {
  const ramp = Math.ceil(seconds * 0.15)
  const disturbedAt = Math.floor(seconds * 0.55)
  const log = Array.from({ length: seconds }, (_, i) =>
    second({ i, ramp, disturbedAt, seconds, nodes, clients }, random),
  )
  const totals = log.reduce<Counts>(
    (sum, { counts }) =>
      Object.fromEntries(
        Object.entries(counts).map(([key, value]) => [key, sum[key as keyof Counts] + value]),
      ) as Counts,
    noCounts(),
  )
  const over = (timing: 'connect' | 'join' | 'rtt' | 'resume') => {
    const all = log.flatMap(({ timings }) => timings[timing] ?? [])
    return all.length === 0 ? {} : { [timing]: joined(all) }
  }
  return {
    scenario: 'steady',
    meaning: 'Rooms of members that each send messages at a steady rate.',
    options: { rooms: String(clients / 10), members: '10', rate: '5', seconds: String(seconds) },
    started_at: '2026-03-01T14:05:00.000Z',
    seconds,
    planned_seconds: seconds,
    interrupted: false,
    failure: undefined,
    machine: { cores: 8, node: 'v20.19.0', roomful: '0.1.0' },
    target: `ws://127.0.0.1:4000 (${nodes} nodes, haproxy)`,
    totals,
    timings: { ...over('rtt'), ...over('connect'), ...over('join'), ...over('resume') },
    seconds_log: log,
    incidents:
      seconds < 10
        ? []
        : [
            { at: disturbedAt, text: 'node-2 drains' },
            { at: disturbedAt + Math.max(2, seconds * 0.06), text: 'node-2 serves again' },
          ],
    checks: [
      check(
        'sequence gaps',
        'Each update of a room has the sequence number after the one before.',
        totals.updates,
        'updates',
      ),
      check(
        'checksum mismatches',
        'The state of a client is the state of the server.',
        totals.updates,
        'updates',
      ),
      check('lost acks', 'What was applied is acked.', totals.acks, 'acks'),
      check('applied twice', 'A reliable message is applied once.', totals.sends, 'sends'),
    ],
    failures: [],
    figures: [{ name: 'worst pause of a player', value: 412, unit: 'ms' }],
    verdicts: [],
    bottleneck: [],
    passed: true,
    ...but,
  }
}

interface Moment extends Omit<RunShape, 'but'> {
  readonly i: number
  readonly ramp: number
  readonly disturbedAt: number
}

function second(moment: Moment, random: Random): Second {
  const { i, ramp, disturbedAt, seconds, nodes, clients } = moment
  const noise = (spread: number) => 1 + spread * (random.float() - 0.5)
  const ramping = i < ramp
  const online = ramping ? Math.round((clients * (i + 1)) / ramp) : clients
  const after = i - disturbedAt
  const disturbed = seconds >= 10 && after >= 0 && after < Math.max(2, seconds * 0.06)
  const sends = ramping ? 0 : Math.round(clients * 5 * noise(0.04))
  const rtt = 3.2 * noise(0.3) * (disturbed ? 1.8 : 1)
  const tail = (disturbed ? 45 : 6) * noise(0.8) + (random.float() > 0.97 ? 20 : 0)
  return {
    at: i + 1,
    phase: ramping ? 'connect' : i >= seconds - 2 && seconds > 10 ? 'answers' : 'play',
    online,
    counts: {
      ...noCounts(),
      connects: ramping ? Math.round(clients / ramp) : 0,
      joins: ramping ? Math.round(clients / ramp) : 0,
      sends,
      acks: Math.round(sends * (disturbed && after < 1 ? 0.8 : 1)),
      updates: Math.round(sends * 9.8 * noise(0.03)),
      resumes: disturbed && after < 2 ? Math.round(clients / nodes / 2) : 0,
      bytes_in: Math.round(sends * 9.8 * 68 * noise(0.05)),
      bytes_out: sends * 44,
    },
    timings: {
      ...(sends > 0 ? { rtt: percentiles(sends, rtt, rtt + tail) } : {}),
      ...(ramping
        ? {
            connect: percentiles(20, 6 * noise(0.4), 22 * noise(0.6)),
            join: percentiles(20, 4 * noise(0.3), 15),
          }
        : {}),
      ...(disturbed && after < 2 ? { resume: percentiles(60, 130 * noise(0.5), 380 * noise(0.4)) } : {}),
    },
    generator: {
      event_loop_delay_ms: 1.4 * noise(0.9),
      event_loop_utilisation: (sends > 0 ? 0.34 : 0.1) * noise(0.2),
      late_ms: 2 * noise(1.4),
      cpu_seconds: (sends > 0 ? 0.9 : 0.3) * noise(0.1),
      rss_bytes: (180 + i / 50) * 1024 ** 2,
    },
    servers: Array.from({ length: nodes }, (_, n) => server(moment, n, disturbed && n === 1, random)),
  }
}

function server(moment: Moment, n: number, down: boolean, random: Random): ServerSecond {
  const { i, ramp, nodes, clients } = moment
  const noise = (spread: number) => 1 + spread * (random.float() - 0.5)
  const share = down ? 0 : Math.min(1, (i + 1) / ramp) / nodes
  const busy = i < ramp ? 0.2 : 0.46 + n * 0.05
  return {
    name: `node-${n + 1}`,
    up: !down,
    seconds: 1,
    cpu_seconds: down ? 0 : busy * noise(0.18),
    rss_bytes: down ? 0 : (118 + n * 6 + Math.min(40, i / 8) + 3 * random.float()) * 1024 ** 2,
    event_loop_utilisation: down ? 0 : busy * 0.85 * noise(0.15),
    event_loop_delay_ms: down ? 0 : 2.2 * noise(1.2) + (random.float() > 0.98 ? 14 : 0),
    connections: Math.round(clients * share),
    sessions: Math.round(clients * share),
    rooms: Math.round((clients / 10) * share),
    members: Math.round(clients * share),
    messages_in: Math.round(clients * 5 * share),
    socket_writes: Math.round(clients * 49 * share),
    bytes_out: Math.round(clients * 49 * 68 * share),
    resyncs: 0,
    errors: 0,
  }
}

function percentiles(count: number, p50: number, p99: number): Percentiles {
  const between = (share: number) => p50 + (p99 - p50) * share
  return {
    count,
    mean: between(0.08),
    p50,
    p90: between(0.25),
    p95: between(0.45),
    p99,
    p999: p99 * 1.2,
    max: p99 * 1.3,
  }
}

/** Combines percentiles. The result is not exact, but plausible in a picture. */
function joined(all: readonly Percentiles[]): Percentiles {
  const middle = (of: keyof Percentiles) =>
    all.map((values) => values[of]).sort((a, b) => a - b)[Math.floor(all.length * 0.6)]!
  const most = (of: keyof Percentiles) => all.reduce((value, values) => Math.max(value, values[of]), 0)
  return {
    count: all.reduce((sum, { count }) => sum + count, 0),
    mean: middle('mean'),
    p50: middle('p50'),
    p90: middle('p90'),
    p95: middle('p95'),
    p99: most('p95'),
    p999: most('p99'),
    max: most('max'),
  }
}

const check = (name: string, meaning: string, lookedAt: number, what: string) => ({
  name,
  meaning,
  violations: 0,
  note: `${lookedAt.toLocaleString('en-US')} ${what}`,
  examples: [],
})
