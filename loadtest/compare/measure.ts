import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { DIALECTS, openDoors, type ServerName } from './dialects.ts'
import { Clients, type Received, type Sending } from './generator.ts'
import { watchOthers } from './machine.ts'
import { type Redis, Servers, sampleRedis, type Total } from './processes.ts'
import { needsRedis, type Scenario } from './scenarios.ts'
import { FLUSHES_PER_SECOND } from './servers/served.ts'

/** One measurement: a server, its clients, and what a window of time costs. */

/** With thousands of clients code is compiled after these seconds. */
const CAPACITY_WARM_SECONDS = 5
/** Until those who stop to read do so. */
const SETTLED_SECONDS = 5
/** How many clients stop to read, for how long, and what they then have to catch up. */
const STALLED = 4
/** How many beside them read on, and tell how the state should be. */
const WITNESSES = 2
const STALL_SECONDS = 10
const SETTLE_SECONDS = 3
/** What others may use of the machine. */
const QUIET = 0.05
/** How busy the generator may be before it is what was measured. */
const BUSY = 0.85

/** What one measurement gave; what a scenario does not have is absent. */
export interface Figures {
  /** CPU-µs of the server, all its processes, per unit of the scenario. */
  cost?: number
  /** Share of what clients should have got, or of the inputs that game code should have seen. */
  delivered?: number
  /** Payload of all that clients received, per update. */
  bytes?: number
  /** Round trips in milliseconds: from an input to the update that has it. */
  p50?: number
  p99?: number
  /** Updates per second of the client that got fewest. */
  slowest?: number
  /** KB per client, after garbage was collected. */
  rss?: number
  /** Share of the updates that came from another node than the client's. */
  crossing?: number
  /** CPU-µs of Redis per update. */
  redis?: number
  /** Commands that Redis ran per second. */
  commands?: number
  joinsPerSecond?: number
  /** Of the clients that did not read for a while, the share whose state is right in the end. */
  right?: number
  /** KB by which the server grew per client that did not read. */
  held?: number
  /** The most that the server carried. */
  clients?: number
  /** How many clients lost their connection. */
  lost?: number
  /** Share of the machine that other processes used. */
  others?: number
  /** How busy the event loop of the generator was. */
  busy?: number
}
export type FigureName = keyof Figures

export interface Options {
  readonly seconds: number
  /**
   * How long the clients play before it for each process: a server is measured as it runs for hours, compiled. What one costs under a small load
   * falls by a third in its first half minute.
   */
  readonly warmSeconds: number
  /** How often a window is repeated while others use the machine. */
  readonly repeats: number
  /** Compiled code, on the Node that `npm run compare` installs; otherwise the sources on this one. */
  readonly built: boolean
  readonly redis?: Redis
  readonly tell: (line: string) => void
}

/** After so long several nodes know that none is busy with its start any more; before, rooms would not be opened where they are asked for. */
const CALM_MS = 3000

/** A server of its own for as long as `use` takes, and the way in for so many clients. */
async function withServer<T>(
  name: ServerName,
  scenario: Scenario,
  count: number,
  { built, redis }: Options,
  use: (server: Servers, clients: Clients) => Promise<T>,
): Promise<T> {
  const { tick, entities, nudges, journal, nodes: processes = 1, direct = false } = scenario
  const redisUrl = needsRedis(scenario) ? redis?.url : undefined
  const settings = { tick, entities, nudges, journal, built, ...(redisUrl !== undefined && { redisUrl }) }
  const server = await Servers.start(name, { count: processes, direct }, settings)
  let clients: Clients | undefined
  try {
    clients = new Clients(DIALECTS[name], await openDoors(server.listening, count, direct))
    if (processes > 1) await sleep(CALM_MS)
    return await use(server, clients)
  } finally {
    clients?.end()
    await server.stop()
  }
}

/** Measures a scenario once. */
export function measure(name: ServerName, scenario: Scenario, options: Options): Promise<Figures> {
  const { kind, clients: count, perRoom } = scenario
  if (kind === 'capacity') return capacity(name, scenario, options)
  return withServer(name, scenario, count, options, async (server, clients) => {
    if (kind === 'joins') return joins(server, clients, scenario)
    if (kind === 'stalled') return stalled(server, clients, scenario)
    const empty = await server.sample({ collect: true })
    await clients.join(count, perRoom)
    const figures = await quietWindow(server, clients, scenario, options)
    const { rssBytes } = await server.sample({ collect: true })
    return { ...figures, rss: (rssBytes - empty.rssBytes) / 1024 / count }
  })
}

/** A window, repeated while others use the machine. */
async function quietWindow(
  server: Servers,
  clients: Clients,
  scenario: Scenario,
  { seconds, warmSeconds, repeats, redis, tell }: Options,
): Promise<Figures> {
  const sending: Sending = {
    perSecond: scenario.inputs,
    nudges: scenario.nudges,
    reliable: scenario.reliable,
  }
  await clients.play(warmSeconds * server.pids.length, sending)
  for (let left = repeats; ; left--) {
    const others = watchOthers([process.pid, ...server.pids, ...(redis ? [redis.pid] : [])])
    const before = await server.sample()
    const redisBefore = redis && (await sampleRedis(redis))
    const received = await clients.play(seconds, sending)
    const after = await server.sample()
    const redisAfter = redis && (await sampleRedis(redis))
    const figures: Figures = {
      ...figuresOf(scenario, clients, received, before, after),
      others: others(),
      ...(scenario.nodes !== undefined && { crossing: clients.elsewhere(after.rooms) }),
      ...(needsRedis(scenario) &&
        redisBefore &&
        redisAfter && {
          redis: ((redisAfter.cpuSeconds - redisBefore.cpuSeconds) * 1e6) / received.updates,
          commands: (redisAfter.commands - redisBefore.commands) / received.seconds,
        }),
    }
    if (clients.lost.length > 0)
      tell(`${clients.lost.length} clients lost their connection: ${clients.lost[0]}`)
    if (!isBusy(figures) || left <= 0) return figures
    tell(`others used ${Math.round(100 * (figures.others ?? 0))}% of the machine: again`)
  }
}

/** All clients come at once. */
async function joins(
  server: Servers,
  clients: Clients,
  { clients: count, perRoom }: Scenario,
): Promise<Figures> {
  const others = watchOthers([process.pid, ...server.pids])
  const before = await server.sample()
  const [start, load] = [performance.now(), performance.eventLoopUtilization()]
  await clients.join(count, perRoom)
  const seconds = (performance.now() - start) / 1_000
  const busy = performance.eventLoopUtilization(load).utilization
  const after = await server.sample()
  return {
    cost: (after.cpuUs - before.cpuUs) / count,
    joinsPerSecond: count / seconds,
    busy,
    others: others(),
  }
}

/** Some clients stop to read for a while: what the server holds for each meanwhile, and whether their state is right in the end. */
async function stalled(
  server: Servers,
  clients: Clients,
  { clients: count, perRoom }: Scenario,
): Promise<Figures> {
  const idle: Sending = { perSecond: 0, nudges: false, reliable: false }
  await clients.join(count, perRoom, STALLED + WITNESSES)
  await clients.play(SETTLED_SECONDS, idle)
  const before = await server.sample({ collect: true })
  clients.stall(STALLED, true)
  await clients.play(STALL_SECONDS, idle)
  const after = await server.sample({ collect: true })
  clients.stall(STALLED, false)
  await clients.play(SETTLED_SECONDS, idle)
  await server.sample({ freeze: true })
  await clients.play(SETTLE_SECONDS, idle)
  const all = await clients.states()
  const [truth, other] = all.splice(STALLED)
  if (!isDeepStrictEqual(truth, other)) throw new Error('Clients that read all the time disagree')
  const right = all.filter((state) => isDeepStrictEqual(state, truth)).length
  return { right: right / STALLED, held: (after.rssBytes - before.rssBytes) / 1024 / STALLED }
}

/** By bisection; each try has a new server. */
async function capacity(name: ServerName, scenario: Scenario, options: Options): Promise<Figures> {
  const play = async (count: number): Promise<Figures> => {
    const figures = await withServer(name, scenario, count, options, async (server, clients) => {
      await clients.join(count, scenario.perRoom)
      const warmSeconds = Math.min(options.warmSeconds, CAPACITY_WARM_SECONDS)
      return quietWindow(server, clients, { ...scenario, clients: count }, { ...options, warmSeconds })
    }).catch((error: Error): Figures => {
      options.tell(error.message)
      return { delivered: 0 }
    })
    const { delivered = 0, p99 = Number.NaN } = figures
    options.tell(`${count} clients: ${Math.round(100 * delivered)}% delivered, p99 ${Math.round(p99)} ms`)
    return figures
  }
  const passes = async (count: number): Promise<boolean> => {
    const { delivered = 0, p99 = Number.NaN } = await play(count)
    return delivered >= 0.97 && p99 < 150
  }
  // A moment of something else on the machine should not halve what is found.
  const carries = async (count: number): Promise<boolean> => (await passes(count)) || passes(count)
  let [low, high] = [0, scenario.perRoom * 20]
  while (high <= scenario.clients && (await carries(high))) [low, high] = [high, high * 2]
  while (high - low > Math.max(scenario.perRoom, low / 10)) {
    const middle = Math.round((low + high) / 2 / scenario.perRoom) * scenario.perRoom
    if (await carries(middle)) low = middle
    else high = middle
  }
  const { cost: _cost, bytes: _bytes, ...twice } = await play(2 * low)
  return { ...twice, clients: low }
}

/** Whether the figures are as much about something else on the machine. */
export const isBusy = ({ others = 0 }: Figures): boolean => others > QUIET
/** Whether the figures are as much about the generator. */
export const isGenerator = ({ busy = 0 }: Figures): boolean => busy > BUSY

function figuresOf(
  { per, perRoom, inputs, tick }: Scenario,
  clients: Clients,
  received: Received,
  before: Total,
  after: Total,
): Figures {
  const { updates, seconds, bytes, fewest, roundTrips, busy } = received
  const seen = after.inputs - before.inputs
  const cpuUs = after.cpuUs - before.cpuUs
  const units = {
    update: updates,
    input: seen,
    flush: updates / perRoom,
    join: clients.count,
    'client and second': clients.count * seconds,
  }
  const expected = clients.count * FLUSHES_PER_SECOND * seconds
  return {
    cost: cpuUs / units[per],
    ...(clients.lost.length > 0 && { lost: clients.lost.length }),
    ...(per !== 'client and second' && {
      delivered: per === 'input' ? seen / received.inputs : updates / expected,
    }),
    busy,
    ...((per === 'update' || per === 'flush') && { bytes: bytes / updates, slowest: fewest / seconds }),
    ...(inputs > 0 &&
      tick === 'none' &&
      per === 'update' && { p50: quantile(roundTrips, 0.5), p99: quantile(roundTrips, 0.99) }),
  }
}

/** A sample: the smallest value that this share of all does not exceed; NaN of none. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN
}
