import { type Room, RoomfulError } from '../../client/index.ts'
import { type BackendOptions, roomful, RoomfulError as ServerError } from '../../server/index.ts'
import * as option from '../option-kinds.ts'
import type { ProxyKind } from '../proxy.ts'
import { type Check, checkOf } from '../result.ts'
import type { CallsRoom } from '../rooms/calls.ts'
import { defineScenario, type RunContext } from '../scenario.ts'
import { count, quantile } from '../text.ts'

/** Scenarios with backends: calls of rooms, and bans of players. */

/** Maximum number of rooms that players open each second, and approximate number that are opened. */
const OPENING_PER_SECOND = 100
const OPENED_PER_SECOND = 70
/** Longest warm-up with one load, and longest measurement of the idle service. */
const WARM_SECONDS = 5
const IDLE_SECONDS = 5

const NAMES: Readonly<Record<ProxyKind, string>> = {
  helper: 'two bare Hono proxies',
  http: 'two Hono proxies that use node:http',
}
const RATIOS: Readonly<Record<ProxyKind, string>> = {
  helper: '(calls − bare Hono proxies) / requests',
  http: '(calls − proxies that use node:http) / requests',
}
const PROXY_KINDS = ['helper', 'http'] as const
const ABOVE = 'p50 of a call over a node that is not the owner, less p50 of a request, at most'
const GOALS: Readonly<Record<string, number>> = { [RATIOS.helper]: 1.2, [ABOVE]: 8 }

/** Backends that call rooms. */
export const calls = defineScenario({
  name: 'calls',
  meaning:
    'Backends call rooms through control, about half over a node that does not own the room. The report compares requests of players, and calls through two plain HTTP proxies.',
  options: {
    projects: option.count('projects', 5),
    rooms: option.count('rooms of each project, with a player in each', 100),
    rate: option.count('calls of each project per second; control allows 200', 200),
    seconds: option.seconds('how long each load lasts', 60),
  },
  local: { direct: true },
  runs: 1,

  async run(ctx, { projects, rooms, rate, seconds }) {
    const { nodes, controls } = ctx.local
    const perSecond = projects * rate
    const pace = { perSecond, seconds }
    const called = await ctx.phase('open', (projects * rooms) / OPENED_PER_SECOND, () =>
      CalledRooms.open(ctx, projects, rooms),
    )
    const [helper, http] = await Promise.all(PROXY_KINDS.map((kind) => ctx.local.proxies(kind)))
    const chains = { helper: helper!, http: http! }
    // Compilation and caches for the first calls are not part of their cost.
    const warm = { perSecond, seconds: Math.min(seconds, WARM_SECONDS) }
    await ctx.phase('warm', 4 * warm.seconds, async () => {
      await called.call(warm)
      for (const { url } of Object.values(chains)) await called.callAt(url, warm)
      await called.request(warm)
    })
    const samples = new Map<string, number[]>()
    const note = (name: string, value: number): number => {
      samples.set(name, [...(samples.get(name) ?? []), value])
      return value
    }
    const all: Answers[] = []
    const idleSeconds = Math.min(seconds, IDLE_SECONDS)
    for (let run = 1; run <= ctx.runs; run++) {
      const idle = await ctx.phase(`idle ${run}`, idleSeconds, () =>
        ctx.local.usageDuring(() => ctx.pass(idleSeconds)),
      )
      /** CPU milliseconds of 1,000 answers, without the usage of the idle service. */
      const measured = async (name: string, work: () => Promise<Answers>) => {
        const usage = await ctx.phase(name, seconds, () => ctx.local.usageDuring(work))
        const { times } = usage.result
        const each = (1e6 * usage.seconds) / Math.max(1, times.length)
        const cost = (names: readonly string[]) => each * (usage.cpu(names) - idle.cpu(names))
        all.push(usage.result)
        return { control: cost(controls), nodes: cost(nodes), times }
      }
      const calling = await measured(`calls ${run}`, () => called.call(pace))
      const forwarded = { helper: 0, http: 0 }
      for (const kind of PROXY_KINDS)
        await ctx.phase(`${kind} ${run}`, seconds, async () => {
          const before = await chains[kind].cpuSeconds()
          const { times } = await called.callAt(chains[kind].url, pace)
          const used = (await chains[kind].cpuSeconds()) - before
          note(`call through ${NAMES[kind]}, p50`, quantile(times, 0.5))
          const cost = (1e6 * used) / Math.max(1, times.length)
          forwarded[kind] = note(`CPU of ${NAMES[kind]}, 1,000 calls`, cost)
        })
      const requesting = await measured(`requests ${run}`, () => called.request(pace))
      const ofCalls =
        note('CPU of control, 1,000 calls', calling.control) +
        note('CPU of the nodes, 1,000 calls', calling.nodes)
      const ofRequests = note('CPU of the nodes, 1,000 requests of players', requesting.nodes)
      for (const kind of PROXY_KINDS) note(RATIOS[kind], (ofCalls - forwarded[kind]) / ofRequests)
      for (const [name, { times }] of [
        ['call', calling],
        ['request of a player', requesting],
      ] as const)
        for (const percent of [50, 99]) note(`${name}, p${percent}`, quantile(times, percent / 100))
      // A node that does not own the room gets about half of the calls. Their median is at most the third quartile of all calls.
      note(ABOVE, quantile(calling.times, 0.75) - quantile(requesting.times, 0.5))
    }
    for (const chain of Object.values(chains)) chain.close()
    for (const [name, values] of samples) {
      const goal = GOALS[name]
      const unit = Object.values(RATIOS).includes(name) ? '' : 'ms'
      ctx.samples({ name, unit, values, ...(goal !== undefined && { goal: { value: goal } }) })
    }
    const sent = all.reduce((sum, answers) => sum + answers.sent, 0)
    const failed = all.flatMap((answers) => answers.failed)
    ctx.figure({ name: 'delivered', value: 100 * (1 - failed.length / Math.max(1, sent)), unit: '%' })
    const unanswered = 'calls and requests without an answer'
    const codes = [...new Set(failed)]
    ctx.check(checkOf(unanswered, 'Each is answered.', `${count(sent)} sent`, codes, failed.length))
    const totals = await called.totals()
    ctx.check(effects('calls', totals.calls))
    ctx.check(effects('requests', totals.requests))
  },
})

/** Rate and duration of a load. */
interface Pace {
  readonly perSecond: number
  readonly seconds: number
}

/** Result of a load. */
interface Answers {
  readonly sent: number
  /** Milliseconds from sending to the answer, for each answered request. */
  readonly times: readonly number[]
  /** Codes of failed requests. */
  readonly failed: readonly string[]
}

/** Answers of a room to one kind of request. */
interface Totals {
  readonly roomId: string
  /** `total` of each answer. */
  readonly answers: readonly number[]
  /** Number of unanswered requests. Each may have been applied. */
  readonly unanswered: number
  /** Number of requests that the room's state counts. */
  readonly applied: number
}

type Kind = 'calls' | 'requests'

/** A room, with its player. */
interface CalledRoom {
  /** Index of its project. */
  readonly project: number
  readonly key: string
  readonly seat: Room<CallsRoom>
  readonly seen: Readonly<Record<Kind, { readonly answers: number[]; unanswered: number }>>
}

/** Rooms of several projects with a player in each. Backends call the rooms, and players send requests. */
class CalledRooms {
  readonly #ctx: RunContext
  readonly #projects: readonly BackendOptions[]
  readonly #rooms: readonly CalledRoom[]

  private constructor(ctx: RunContext, projects: readonly BackendOptions[], rooms: readonly CalledRoom[]) {
    this.#ctx = ctx
    this.#projects = projects
    this.#rooms = rooms
  }

  /** Creates projects, and opens `rooms` rooms of each with a player who stays in the room. */
  static async open(ctx: RunContext, count: number, rooms: number): Promise<CalledRooms> {
    const { sdk } = ctx
    const projects = await Promise.all(Array.from({ length: count }, () => sdk.project()))
    const opened: CalledRoom[][] = Array.from({ length: rooms }, () => [])
    for (const [project, { issuer }] of projects.entries()) {
      const clients = await sdk.connect<{ 'load-calls': CallsRoom }>(Array.from({ length: rooms }), issuer)
      await sdk.ramp(clients, OPENING_PER_SECOND, async (client, number) => {
        const key = `room-${number}`
        const seat = await client.join('load-calls', { key })
        const seen = { calls: { answers: [], unanswered: 0 }, requests: { answers: [], unanswered: 0 } }
        opened[number]!.push({ project, key, seat, seen })
      })
    }
    // The projects alternate.
    const options = projects.map(({ options }) => options)
    return new CalledRooms(ctx, options, opened.flat())
  }

  /** Calls each room in turn. */
  call(pace: Pace): Promise<Answers> {
    return this.#load(pace, 'calls', (room) => this.#call(room))
  }

  /** Sends the requests of `call` to another server, which does not know the rooms. */
  callAt(url: string, pace: Pace): Promise<Answers> {
    return this.#load(pace, undefined, (room) => this.#call(room, { url }))
  }

  /** Lets the player of each room in turn send a request. */
  request(pace: Pace): Promise<Answers> {
    return this.#load(pace, 'requests', async ({ seat }) => (await seat.request('grant', { gold: 5 })).total)
  }

  /** Reads the state of each room. */
  async totals(): Promise<{ readonly [kind in Kind]: readonly Totals[] }> {
    const found: Record<Kind, Totals[]> = { calls: [], requests: [] }
    for (const room of this.#rooms) {
      const { state } = await this.#ctx.sdk.unlessInterrupted(this.#room(room).state())
      for (const kind of ['calls', 'requests'] as const)
        found[kind].push({ roomId: room.seat.id, applied: state[kind], ...room.seen[kind] })
    }
    return found
  }

  async #call(room: CalledRoom, at?: { readonly url: string }): Promise<number> {
    return (await this.#room(room, at).call('grant', { gold: 5 })).total
  }

  /** A room, as the backend of its project reads it. */
  #room({ project, key }: CalledRoom, at?: { readonly url: string }) {
    return roomful({ ...this.#projects[project]!, ...at }).room<CallsRoom>('load-calls', key)
  }

  async #load(
    { perSecond, seconds }: Pace,
    kind: Kind | undefined,
    send: (room: CalledRoom) => Promise<number>,
  ): Promise<Answers> {
    const { sdk, clock } = this.#ctx
    const times: number[] = []
    const failed: string[] = []
    const sent = Math.floor(perSecond * seconds)
    await sdk.repeat(sent, perSecond, async (number) => {
      const room = this.#rooms[number % this.#rooms.length]!
      const seen = kind && room.seen[kind]
      const began = clock.monotonic()
      try {
        const total = await send(room)
        times.push(clock.monotonic() - began)
        seen?.answers.push(total)
      } catch (error) {
        if (!(error instanceof RoomfulError || error instanceof ServerError)) throw error
        if (seen) seen.unanswered += 1
        failed.push(error.code)
      }
    })
    return { sent, times, failed }
  }
}

/** Checks that each room has applied what it has answered once, and nothing else. */
export function effects(what: string, rooms: readonly Totals[]): Check {
  const wrong = rooms.flatMap(({ roomId, answers, unanswered, applied }) => {
    const distinct = new Set(answers)
    const twice = applied - answers.length - unanswered
    if (distinct.size < answers.length)
      return [`${roomId}: ${answers.length - distinct.size} answers came twice`]
    if (twice > 0) return [`${roomId}: ${applied} applied, ${answers.length} answered, ${unanswered} not`]
    if (Math.max(0, answers.length, ...distinct) > applied)
      return [`${roomId}: ${answers.length} answered, ${applied} applied`]
    return []
  })
  const note = `${count(rooms.reduce((sum, { answers }) => sum + answers.length, 0))} answers of ${rooms.length} rooms`
  return checkOf(`${what}: effects`, 'The effect of each is in the state of its room once.', note, wrong)
}

/** Approximate number of bans that the load test writes in a second. */
const BANS_PER_SECOND = 10_000
const START_SECONDS = 3

/** Cost of many bans for players who are not banned. */
export const bans = defineScenario({
  name: 'bans',
  meaning: 'Players connect, and control restarts, with many bans and without. Bans must not raise costs.',
  options: {
    bans: option.count('banned players', 100_000),
    'per-second': option.count('players who connect each second', 50),
    seconds: option.seconds('how long they do', 10),
  },
  local: { direct: true },
  runs: 3,

  async run(ctx, { bans, 'per-second': perSecond, seconds }) {
    const { local, sdk } = ctx
    const { options } = await sdk.project()
    const { projectId } = options
    const tokenOf = (sub: string) => roomful(options).token({ sub, ttlSeconds: 3600 })
    /** Connects and disconnects. */
    const visit = async (token: string, number: number) => {
      const client = await sdk.open({ projectId, token }, number, { reconnect: false })
      client.close()
    }
    const tokens: string[] = []
    // Each player connects once a second. The service allows 20.
    await ctx.phase('open', 1, () =>
      sdk.repeat(perSecond, perSecond, async (number) => {
        tokens.push(await tokenOf(`visitor-${number}`))
      }),
    )
    const visits = Math.floor(perSecond * seconds)
    const visitAll = () =>
      sdk.repeat(visits, perSecond, (number) => visit(tokens[number % tokens.length]!, number))
    const banned = Array.from({ length: bans }, (_, number) => `banned-${number}`)
    // Compilation and caches for the first handshakes are not part of their cost.
    await ctx.phase('warm', seconds, visitAll)
    const samples = {
      without: { cpu: [] as number[], start: [] as number[] },
      with: { cpu: [] as number[], start: [] as number[] },
    }
    for (let run = 1; run <= ctx.runs; run++)
      for (const side of ['without', 'with'] as const) {
        const isBanned = side === 'with'
        if (isBanned || run > 1)
          await ctx.phase(`${isBanned ? 'bans' : 'unbans'} ${run}`, bans / BANS_PER_SECOND, () =>
            local.setBans(projectId, banned, isBanned),
          )
        await ctx.phase(`${side} bans ${run}`, seconds, async () => {
          const usage = await ctx.local.usageDuring(visitAll)
          samples[side].cpu.push((1000 * usage.cpu(local.nodes) * usage.seconds) / visits)
        })
        await ctx.phase(`start ${side} bans ${run}`, START_SECONDS, async () => {
          const [control = ''] = local.controls
          await local.end(control)
          const began = performance.now()
          await local.process(control).start()
          samples[side].start.push(performance.now() - began)
        })
      }
    for (const side of ['without', 'with'] as const) {
      const title = side === 'with' ? `with ${bans.toLocaleString('en-US')} bans` : 'without bans'
      ctx.samples({ name: `CPU of a handshake, ${title}`, unit: 'ms', values: samples[side].cpu })
      ctx.samples({ name: `start of control, ${title}`, unit: 'ms', values: samples[side].start })
    }
    const last = banned.at(-1)!
    let refusal: string | undefined
    await sdk.ramp([last], 1, async () => {
      try {
        await visit(await tokenOf(last), 0)
      } catch (error) {
        if (!(error instanceof RoomfulError)) throw error
        refusal = error.code
      }
    })
    const note = `${last}: ${refusal ?? 'let in'}`
    ctx.check(checkOf('bans', 'A banned player is refused.', note, [], refusal === 'banned' ? 0 : 1))
  },
})
