import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { quantile } from '../../loadtest/text.ts'
import { DIALECTS, endpointsOf, type ServerName } from './dialects.ts'
import { Clients } from './generator.ts'
import { type Contender, othersCpuUs, type Server, spin, startServer, type Total } from './processes.ts'
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
/** Number of spinning processes, and for how long they run before the window. */
const SPINNERS = 3
const STARVING_SECONDS = 5
/** Length of the windows after them, the share of updates with which rooms have recovered, and the longest time for it. */
const LOOK_SECONDS = 0.5
const RECOVERED = 0.95
const RECOVERY_SECONDS = 20
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
/** Number of clients of one round of the warm-up, and of all rounds. The kernel keeps the port of a closed connection for a minute. */
const [WARMING, MOST_WARMING] = [500, 12_000]
/** Until then, the writes of the joins are done. */
const CUT_AFTER_MS = 2000
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
  readonly report: (line: string) => void
}

/** One kind of measurement, with a new server and clients that can connect to it. */
type Measure = (server: Server, clients: Clients, scenario: Scenario, options: Options) => Promise<Figures>

/** Measures a server once. */
export const measure = (contender: Contender, options: Options): Promise<Figures> => {
  const { kind } = contender.scenario
  return kind === 'capacity'
    ? capacity(contender, options)
    : withServer(
        contender,
        options,
        { play, memory, joins, resumes, arrivals, lobby, stalled, starved }[kind],
      )
}

/** Lets the clients of all servers play at the same time. Measures the same window of each. */
export async function measureTogether(
  contenders: readonly Contender[],
  { seconds, warmSeconds, built }: Options,
): Promise<Figures[]> {
  const all: (Awaited<ReturnType<typeof open>> & { readonly scenario: Scenario })[] = []
  try {
    for (const contender of contenders) {
      const { scenario } = contender
      const opened = await open(contender, built)
      all.push({ ...opened, scenario })
      await opened.clients.join(scenario.clients, scenario.perRoom)
    }
    const playing = (time: number) =>
      all.map(({ server, clients, scenario }) => ({ server, work: () => clients.play(time, scenario) }))
    const mostNodes = Math.max(...all.map(({ server }) => server.listening.length))
    await Promise.all(playing(warmSeconds * mostNodes).map(({ work }) => work()))
    const observed = await observeAll(playing(seconds))
    return all.map(({ scenario, clients }, i) => figuresOf(scenario, clients, observed[i]!))
  } finally {
    await Promise.all(all.map(({ end }) => end()))
  }
}

/** Starts a server, and prepares clients that can connect to it. */
async function open(contender: Contender, built: boolean) {
  const { server: name, scenario } = contender
  const { arrivals = 0, clients: count, kind, direct = false } = scenario
  const later = kind === 'lobby' ? shareOf(count, WATCHERS) + shareOf(count, FINDERS) : arrivals
  const server = await startServer(contender, built)
  try {
    const endpoints = await endpointsOf(server.listening, count + later, direct)
    const clients = new Clients(DIALECTS[name], endpoints)
    if (server.listening.length > 1) await sleep(CALM_MS)
    const end = async (): Promise<void> => {
      clients.end()
      await server.stop()
    }
    return { server, clients, end }
  } catch (error) {
    await server.stop()
    throw error
  }
}

async function withServer(contender: Contender, options: Options, use: Measure): Promise<Figures> {
  const { server: name, scenario } = contender
  const { server, clients, end } = await open(contender, options.built)
  try {
    if (scenario.kind === 'joins' || scenario.kind === 'resumes') await warm(name, server, scenario, options)
    return await use(server, clients, scenario, options)
  } finally {
    await end()
  }
}

/** Lets other clients join other rooms, resume if that is measured, and leave, again and again, until that code is compiled. */
async function warm(name: ServerName, server: Server, scenario: Scenario, options: Options): Promise<void> {
  const { direct = false, kind, perRoom } = scenario
  const end = performance.now() + 1_000 * options.warmSeconds
  const count = Math.min(WARMING, scenario.clients)
  const most = kind === 'resumes' ? MOST_WARMING / 2 : MOST_WARMING
  for (let left = most; left > 0 && performance.now() < end; left -= count) {
    const endpoints = await endpointsOf(server.listening, count, direct)
    const some = new Clients(DIALECTS[name], endpoints, 'warm')
    try {
      await some.join(count, perRoom, count)
      if (kind === 'resumes') await some.prepareResumes()()
      await some.leave()
    } finally {
      some.end()
    }
  }
}

/** Runs `work`. Returns what the server has used during it, and the use of the machine. */
async function observe<T>(server: Server, work: () => Promise<T>) {
  const [observed] = await observeAll([{ server, work }])
  return observed!
}

/** Runs the works of all servers at the same time. Returns what each server has used during it, and the use of the machine. */
async function observeAll<T>(all: readonly { readonly server: Server; readonly work: () => Promise<T> }[]) {
  const sampleAll = async () => ({
    samples: await Promise.all(all.map(({ server }) => server.sample())),
    othersUs: othersCpuUs(),
  })
  const before = await sampleAll()
  const [start, load] = [performance.now(), performance.eventLoopUtilization()]
  const results = await Promise.all(all.map(({ work }) => work()))
  const seconds = (performance.now() - start) / 1_000
  const busy = performance.eventLoopUtilization(load).utilization
  const after = await sampleAll()
  const usedBy = (index: number) => (name: Used) => after.samples[index]![name] - before.samples[index]![name]
  const ownUs = all.reduce((sum, _, i) => sum + usedBy(i)('cpuUs') + usedBy(i)('redisCpuUs'), 0)
  const others = Math.max(0, after.othersUs - before.othersUs - ownUs) / (1e6 * seconds)
  return results.map((result, i) => ({
    result,
    seconds,
    rooms: after.samples[i]!.rooms,
    used: usedBy(i),
    machine: { busy, others },
  }))
}
type Used = Exclude<keyof Total, 'rooms' | 'stallMs'>
type Received = Awaited<ReturnType<Clients['play']>>
type Observed = Awaited<ReturnType<typeof observe<Received>>>

/** Measures a window of load, and the memory of the server for each client. */
const play: Measure = async (server, clients, scenario, options) => {
  const empty = await server.sample('collect')
  await clients.join(scenario.clients, scenario.perRoom)
  const figures = await quietWindow(server, clients, scenario, options)
  const { rssBytes } = await server.sample('collect')
  return { ...figures, rss: (rssBytes - empty.rssBytes) / 1024 / scenario.clients }
}

/**
 * Lets half of the clients play, then all. Measures the memory that the server uses for each client of the second half: resident memory as
 * it is, and live memory after a garbage collection.
 */
const memory: Measure = async (server, clients, scenario, { warmSeconds }) => {
  const half = scenario.clients / 2
  const more = async () => {
    await clients.join(half, scenario.perRoom)
    await clients.play(warmSeconds, scenario)
    const { rssBytes } = await server.sample()
    const { liveBytes } = await server.sample('collect')
    return { rssBytes, liveBytes }
  }
  const before = await more()
  const after = await more()
  const each = (of: 'liveBytes' | 'rssBytes') => (after[of] - before[of]) / 1024 / half
  return { live: each('liveBytes'), further: each('rssBytes') }
}

/** Measures a window of load. Repeats it while other processes use the machine. */
const quietWindow: Measure = async (server, clients, scenario, options) => {
  const { seconds, warmSeconds, repeats, report } = options
  await clients.play(warmSeconds * server.listening.length, scenario)
  for (let left = repeats; ; left--) {
    const figures = figuresOf(scenario, clients, await observe(server, () => clients.play(seconds, scenario)))
    if (clients.lost.length > 0)
      report(`${clients.lost.length} clients lost their connection: ${clients.lost[0]}`)
    if (!isDisturbed(figures) || left <= 0) return figures
    report(`others used ${Math.round(100 * (figures.others ?? 0))}% of a core: again`)
  }
}

/** Lets all clients join at the same time. */
const joins: Measure = async (server, clients, { clients: count, perRoom }) => {
  const { seconds, used, machine } = await observe(server, () => clients.join(count, perRoom))
  return { cost: used('cpuUs') / count, ...machine, joinsPerSecond: count / seconds }
}

/** Cuts all clients at one moment, and lets them resume at the next. */
const resumes: Measure = async (server, clients, { clients: count, perRoom }) => {
  await clients.join(count, perRoom, count)
  await sleep(CUT_AFTER_MS)
  const resume = clients.prepareResumes()
  await server.sample('watch')
  const { result: back, used, machine } = await observe(server, resume)
  const { stallMs: stall } = await server.sample()
  return { cost: used('cpuUs') / count, ...machine, back, stall }
}

/** Lets clients join existing rooms at the same time. */
const arrivals: Measure = async (server, clients, scenario) => {
  const { arrivals: count = 0, clients: present, perRoom, watch = false } = scenario
  await clients.join(present, perRoom)
  const arrive = () => clients.arrive(count, present / perRoom, watch)
  const { seconds, used, machine } = await observe(server, arrive)
  return { cost: used('cpuUs') / count, ...machine, joinsPerSecond: count / seconds }
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
  const { used, machine } = await observe(server, find)
  const others = Math.max(figures.others ?? 0, machine.others)
  return { ...figures, finding: used('cpuUs') / finders, others }
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

/** Measures a window in which spinning processes use the core of the server, and the seconds until all updates arrive again. */
const starved: Measure = async (server, clients, scenario, { seconds, warmSeconds }) => {
  const { clients: count, perRoom } = scenario
  await clients.join(count, perRoom)
  await clients.play(warmSeconds, scenario)
  const end = spin(SPINNERS)
  try {
    await clients.play(STARVING_SECONDS, scenario)
    const observed = await observe(server, () => clients.play(seconds, scenario))
    const { others: _, ...figures } = figuresOf(scenario, clients, observed)
    end()
    return {
      ...figures,
      core: observed.used('cpuUs') / 1e6 / observed.seconds,
      recovered: await recovery(clients, scenario),
    }
  } finally {
    end()
  }
}

/** Returns the seconds until the clients get nearly all updates. */
async function recovery(clients: Clients, scenario: Scenario): Promise<number> {
  const all = scenario.clients * FLUSHES_PER_SECOND
  for (const start = performance.now(); ; ) {
    const began = performance.now()
    const { updates } = await clients.play(LOOK_SECONDS, scenario)
    const seconds = (performance.now() - began) / 1_000
    const passed = (began - start) / 1_000
    if (updates >= RECOVERED * all * seconds || passed >= RECOVERY_SECONDS) return passed
  }
}

/** Bisects the number of clients, with a new server for each attempt. */
async function capacity(contender: Contender, options: Options): Promise<Figures> {
  const { scenario } = contender
  const { perRoom } = scenario
  const warmSeconds = Math.min(options.warmSeconds, CAPACITY_WARM_SECONDS)
  const attempt = async (count: number): Promise<{ figures: Figures; passes: boolean }> => {
    const sized = { ...contender, scenario: { ...scenario, clients: count } }
    const figures = await withServer(sized, { ...options, warmSeconds }, play).catch(
      (error: Error): Figures => {
        options.report(error.message)
        return { delivered: 0 }
      },
    )
    const { delivered = 0, p99 = Number.NaN } = figures
    options.report(`${count} clients: ${Math.round(100 * delivered)}% delivered, p99 ${Math.round(p99)} ms`)
    return { figures, passes: delivered >= CARRIED.delivered && p99 < CARRIED.p99 }
  }
  // A second attempt: a short disturbance of the machine must not halve the result.
  const carries = async (count: number): Promise<boolean> =>
    (await attempt(count)).passes || (await attempt(count)).passes
  let [low, high] = [0, perRoom * 20]
  while (high <= scenario.clients && (await carries(high))) [low, high] = [high, high * 2]
  while (high - low > Math.max(perRoom, low / 10)) {
    const middle = Math.round((low + high) / 2 / perRoom) * perRoom
    if (await carries(middle)) low = middle
    else high = middle
  }
  const { cost: _cost, bytes: _bytes, rss: _rss, ...twice } = (await attempt(2 * low)).figures
  return { ...twice, clients: low }
}

function figuresOf(
  scenario: Scenario,
  clients: Clients,
  { result: { updates, bytes, fewest, roundTrips, inputs: sent }, seconds, rooms, used, machine }: Observed,
): Figures {
  const { per, clients: count, perRoom, inputs, tick, nodes } = scenario
  const seen = used('inputs')
  const units = {
    update: updates,
    input: seen,
    flush: updates / perRoom,
    join: count,
    resume: count,
    'client and second': count * seconds,
    'room and second': (count / perRoom) * seconds,
  }
  const delivered = per === 'input' ? seen / sent : updates / (count * FLUSHES_PER_SECOND * seconds)
  return {
    cost: used('cpuUs') / units[per],
    ...machine,
    ...(clients.lost.length > 0 && { lost: clients.lost.length }),
    ...(!per.endsWith('second') && { delivered }),
    ...((per === 'update' || per === 'flush') && { bytes: bytes / updates, slowest: fewest / seconds }),
    ...(inputs > 0 &&
      tick === 'none' &&
      per === 'update' && { p50: quantile(roundTrips, 0.5), p99: quantile(roundTrips, 0.99) }),
    ...(nodes !== undefined && { crossing: clients.elsewhere(rooms) }),
    ...(needsRedis(scenario) && {
      redis: used('redisCpuUs') / updates,
      commands: used('commands') / seconds,
    }),
  }
}
