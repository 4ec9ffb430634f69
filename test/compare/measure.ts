import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { quantile } from '../../loadtest/text.ts'
import { DIALECTS, endpointsOf, type ServerName } from './dialects.ts'
import { Clients, type Received } from './generator.ts'
import { type Redis, type Server, sampleRedis, startServer, type Total, watchOthers } from './processes.ts'
import { type Figures, isDisturbed } from './report.ts'
import { needsRedis, type Scenario } from './scenarios.ts'
import { FLUSHES_PER_SECOND } from './servers/served.ts'

/** One measurement: a server, its clients, and the cost of a window of time. */

/** With thousands of clients the hot code is compiled after this time. */
const CAPACITY_WARM_SECONDS = 5
/** Goals that a server must meet to carry a number of clients. */
const CARRIED = { delivered: 0.97, p99: 150 }
/** Time until joins, or clients that read again, no longer affect the measurement. */
const CALM_SECONDS = 5
/** Number of clients that stop reading, and for how long. */
const STALLED = 4
const STALL_SECONDS = 10
/** Number of clients that read all the time. Their state is the correct one. */
const WITNESSES = 2
/** Time for the last updates to arrive after the rooms stop moving. */
const LAST_SECONDS = 3
/** Watching and searching clients, as a share of the listed rooms. */
const WATCHERS = 0.02
const FINDERS = 0.5
/** Number of clients that search at the same time. */
const FINDING = 16
/** Nodes regard each other as busy for some time after their start. Before that, rooms would open elsewhere. */
const CALM_MS = 3000

export interface Options {
  readonly seconds: number
  /** Seconds of load before the window, for each process. After half a minute, when all code is compiled, a small load costs a third less. */
  readonly warmSeconds: number
  /** Most repetitions of a window in which others used the machine. */
  readonly repeats: number
  /** Runs compiled code on the Node that `npm run compare` installs; otherwise the sources on this Node. */
  readonly built: boolean
  readonly redis?: Redis
  readonly report: (line: string) => void
}

/** One kind of measurement, with a new server and clients that can connect to it. */
type Measure = (server: Server, clients: Clients, scenario: Scenario, options: Options) => Promise<Figures>

/** Measures a scenario once. */
export const measure = (name: ServerName, scenario: Scenario, options: Options): Promise<Figures> =>
  scenario.kind === 'capacity'
    ? capacity(name, scenario, options)
    : withServer(name, scenario, options, { play, joins, lobby, stalled }[scenario.kind])

async function withServer(
  name: ServerName,
  scenario: Scenario,
  options: Options,
  use: Measure,
): Promise<Figures> {
  const { clients, kind, nodes: processes = 1, direct = false, against: _, ...others } = scenario
  const redisUrl = needsRedis(scenario) ? options.redis?.url : undefined
  const settings = { ...others, built: options.built, ...(redisUrl !== undefined && { redisUrl }) }
  const count = kind === 'lobby' ? clients + shareOf(clients, WATCHERS) + shareOf(clients, FINDERS) : clients
  const server = await startServer(name, { count: processes, direct }, settings)
  let all: Clients | undefined
  try {
    all = new Clients(DIALECTS[name], await endpointsOf(server.listening, count, direct))
    if (processes > 1) await sleep(CALM_MS)
    return await use(server, all, scenario, options)
  } finally {
    all?.end()
    await server.stop()
  }
}

/** Measures a window of load, and the memory of the server for each client. */
const play: Measure = async (server, clients, scenario, options) => {
  const empty = await server.sample('collect')
  await clients.join(scenario.clients, scenario.perRoom)
  const figures = await quietWindow(server, clients, scenario, options)
  const { rssBytes } = await server.sample('collect')
  return { ...figures, rss: (rssBytes - empty.rssBytes) / 1024 / scenario.clients }
}

/** Measures a window of load. Repeats it while other processes use the machine. */
const quietWindow: Measure = async (server, clients, scenario, options) => {
  const { seconds, warmSeconds, repeats, report } = options
  const redis = needsRedis(scenario) ? options.redis : undefined
  await clients.play(warmSeconds * server.pids.length, scenario)
  const sample = () => Promise.all([server.sample(), redis && sampleRedis(redis)])
  for (let left = repeats; ; left--) {
    const others = watchOthers([process.pid, ...server.pids, ...(redis ? [redis.pid] : [])])
    const [before, redisBefore] = await sample()
    const received = await clients.play(seconds, scenario)
    const [after, redisAfter] = await sample()
    const figures: Figures = {
      ...figuresOf(scenario, clients, received, before, after),
      others: others(),
      ...(scenario.nodes !== undefined && { crossing: clients.elsewhere(after.rooms) }),
      ...(redisBefore &&
        redisAfter && {
          redis: ((redisAfter.cpuSeconds - redisBefore.cpuSeconds) * 1e6) / received.updates,
          commands: (redisAfter.commands - redisBefore.commands) / received.seconds,
        }),
    }
    if (clients.lost.length > 0)
      report(`${clients.lost.length} clients lost their connection: ${clients.lost[0]}`)
    if (!isDisturbed(figures) || left <= 0) return figures
    report(`others used ${Math.round(100 * (figures.others ?? 0))}% of the machine: again`)
  }
}

/** Runs `work`. Returns the CPU time of the server for each of `count` units, in µs, and the use of the machine by other processes. */
async function costOf(server: Server, count: number, work: () => Promise<void>) {
  const others = watchOthers([process.pid, ...server.pids])
  const before = await server.sample()
  await work()
  const after = await server.sample()
  return { cost: (after.cpuUs - before.cpuUs) / count, others: others() }
}

/** Lets all clients join at the same time. */
const joins: Measure = async (server, clients, { clients: count, perRoom }) => {
  let joining = { joinsPerSecond: 0, busy: 0 }
  const cost = await costOf(server, count, async () => {
    const [start, load] = [performance.now(), performance.eventLoopUtilization()]
    await clients.join(count, perRoom)
    const joinsPerSecond = (1_000 * count) / (performance.now() - start)
    joining = { joinsPerSecond, busy: performance.eventLoopUtilization(load).utilization }
  })
  return { ...cost, ...joining }
}

/** Measures rooms whose rows change while clients watch them. Then the rows rest, and other clients find rooms. */
const lobby: Measure = async (server, clients, scenario, options) => {
  const finders = shareOf(scenario.clients, FINDERS)
  await clients.join(scenario.clients, scenario.perRoom)
  await clients.watch(shareOf(scenario.clients, WATCHERS))
  const { slowest: _, ...figures } = await quietWindow(server, clients, scenario, options)
  await server.sample('freeze')
  const find = await clients.finders(finders, FINDING)
  await sleep(CALM_MS)
  const { cost: finding, others } = await costOf(server, finders, find)
  return { ...figures, finding, others: Math.max(figures.others ?? 0, others) }
}

const shareOf = (count: number, share: number): number => Math.ceil(count * share)

/** Some clients stop reading. Measures the memory that the server holds for each, and whether their state is correct in the end. */
const stalled: Measure = async (server, clients, { clients: count, perRoom }) => {
  const watch = (seconds: number) => clients.play(seconds, { inputs: 0, nudges: false, reliable: false })
  await clients.join(count, perRoom, STALLED + WITNESSES)
  await watch(CALM_SECONDS)
  const before = await server.sample('collect')
  clients.stall(STALLED, true)
  await watch(STALL_SECONDS)
  const after = await server.sample('collect')
  clients.stall(STALLED, false)
  await watch(CALM_SECONDS)
  await server.sample('freeze')
  await watch(LAST_SECONDS)
  const all = await clients.states()
  const [truth, other] = all.splice(STALLED)
  if (!isDeepStrictEqual(truth, other)) throw new Error('clients that read all the time disagree')
  const right = all.filter((state) => isDeepStrictEqual(state, truth)).length
  return { right: right / STALLED, held: (after.rssBytes - before.rssBytes) / 1024 / STALLED }
}

/** Bisects the number of clients, with a new server for each attempt. */
async function capacity(name: ServerName, scenario: Scenario, options: Options): Promise<Figures> {
  const { perRoom } = scenario
  const warmSeconds = Math.min(options.warmSeconds, CAPACITY_WARM_SECONDS)
  const playWith = async (count: number): Promise<Figures> => {
    const sized = { ...scenario, clients: count }
    const figures = await withServer(name, sized, { ...options, warmSeconds }, play).catch(
      (error: Error): Figures => {
        options.report(error.message)
        return { delivered: 0 }
      },
    )
    const { delivered = 0, p99 = Number.NaN } = figures
    options.report(`${count} clients: ${Math.round(100 * delivered)}% delivered, p99 ${Math.round(p99)} ms`)
    return figures
  }
  const passes = async (count: number): Promise<boolean> => {
    const { delivered = 0, p99 = Number.NaN } = await playWith(count)
    return delivered >= CARRIED.delivered && p99 < CARRIED.p99
  }
  // A second attempt: a short disturbance of the machine must not halve the result.
  const carries = async (count: number): Promise<boolean> => (await passes(count)) || passes(count)
  let [low, high] = [0, perRoom * 20]
  while (high <= scenario.clients && (await carries(high))) [low, high] = [high, high * 2]
  while (high - low > Math.max(perRoom, low / 10)) {
    const middle = Math.round((low + high) / 2 / perRoom) * perRoom
    if (await carries(middle)) low = middle
    else high = middle
  }
  const { cost: _cost, bytes: _bytes, rss: _rss, ...twice } = await playWith(2 * low)
  return { ...twice, clients: low }
}

function figuresOf(
  { per, perRoom, inputs, tick }: Scenario,
  { count, lost }: Clients,
  { updates, seconds, bytes, fewest, roundTrips, busy, inputs: sent }: Received,
  before: Total,
  after: Total,
): Figures {
  const seen = after.inputs - before.inputs
  const units = {
    update: updates,
    input: seen,
    flush: updates / perRoom,
    join: count,
    'client and second': count * seconds,
    'room and second': (count / perRoom) * seconds,
  }
  const delivered = per === 'input' ? seen / sent : updates / (count * FLUSHES_PER_SECOND * seconds)
  return {
    cost: (after.cpuUs - before.cpuUs) / units[per],
    busy,
    ...(lost.length > 0 && { lost: lost.length }),
    ...(!per.endsWith('second') && { delivered }),
    ...((per === 'update' || per === 'flush') && { bytes: bytes / updates, slowest: fewest / seconds }),
    ...(inputs > 0 &&
      tick === 'none' &&
      per === 'update' && { p50: quantile(roundTrips, 0.5), p99: quantile(roundTrips, 0.99) }),
  }
}
