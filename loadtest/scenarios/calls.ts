import type { Answers, Totals } from '../clients/calls.ts'
import * as option from '../option-kinds.ts'
import type { ProxyKind } from '../proxy/chain.ts'
import type { Check } from '../result.ts'
import { defineScenario, type RunContext } from '../scenario.ts'
import { count, quantile } from '../text.ts'
import { cpuSeconds } from './cpu.ts'

const MAX_EXAMPLES = 5
/** Rooms that are opened in a second, about. */
const OPENED_PER_SECOND = 70
/** Longest warm-up with one load, and longest time in which the idle service is measured. */
const WARM_SECONDS = 5
const IDLE_SECONDS = 5

/** Backends that call rooms. */
export const calls = defineScenario({
  name: 'calls',
  meaning:
    'Backends call rooms, through control and nodes that often do not own them. The same number of player requests, and the same calls through two bare proxies, show what that costs.',
  options: {
    projects: option.count('projects', 5),
    rooms: option.count('rooms of each project, with a player in each', 100),
    rate: option.count('calls of each project per second; control allows 200', 200),
    seconds: option.seconds('how long each load lasts', 60),
  },
  service: 'local',
  local: { direct: true },
  runs: 1,

  async run(ctx, { projects, rooms, rate, seconds }) {
    const { calls } = ctx
    const perSecond = projects * rate
    const pace = { perSecond, seconds }
    await ctx.phase('open', (projects * rooms) / OPENED_PER_SECOND, () => calls.open({ projects, rooms }))
    const [helper, http] = await Promise.all([ctx.proxies('helper'), ctx.proxies('http')])
    const chains = { helper, http }
    // Code and caches for the first calls are not part of their cost.
    const warm = { perSecond, seconds: Math.min(seconds, WARM_SECONDS) }
    await ctx.phase('warm', 4 * warm.seconds, async () => {
      await calls.call(warm)
      for (const { url } of Object.values(chains)) await calls.callAt(url, warm)
      await calls.request(warm)
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
        usageDuring(ctx, () => ctx.pass(idleSeconds)),
      )
      /** CPU milliseconds of 1,000 answers, without what the idle service uses. */
      const measured = async (name: string, work: () => Promise<Answers>) => {
        const {
          control,
          nodes,
          seconds: took,
          result,
        } = await ctx.phase(name, seconds, () => usageDuring(ctx, work))
        const each = (1e6 * took) / Math.max(1, result.times.length)
        all.push(result)
        return {
          control: each * (control - idle.control),
          nodes: each * (nodes - idle.nodes),
          times: result.times,
        }
      }
      const called = await measured(`calls ${run}`, () => calls.call(pace))
      const forwarded = { helper: 0, http: 0 }
      for (const kind of ['helper', 'http'] as const)
        await ctx.phase(`${kind} ${run}`, seconds, async () => {
          const before = await chains[kind].cpuSeconds()
          const { times } = await calls.callAt(chains[kind].url, pace)
          const used = (await chains[kind].cpuSeconds()) - before
          note(`call through ${NAMES[kind]}, p50`, quantile(times, 0.5))
          forwarded[kind] = note(
            `CPU of ${NAMES[kind]}, 1,000 calls`,
            (1e6 * used) / Math.max(1, times.length),
          )
        })
      const requested = await measured(`requests ${run}`, () => calls.request(pace))
      const ofCalls =
        note('CPU of control, 1,000 calls', called.control) +
        note('CPU of the nodes, 1,000 calls', called.nodes)
      const ofRequests = note('CPU of the nodes, 1,000 requests of players', requested.nodes)
      for (const kind of ['helper', 'http'] as const)
        note(RATIOS[kind], (ofCalls - forwarded[kind]) / ofRequests)
      for (const [name, { times }] of [
        ['call', called],
        ['request of a player', requested],
      ] as const)
        for (const percent of [50, 99]) note(`${name}, p${percent}`, quantile(times, percent / 100))
      // A node that does not own the room gets about half of the calls. Their median is at most the third quartile of all calls.
      note(ABOVE, quantile(called.times, 0.75) - quantile(requested.times, 0.5))
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
    ctx.check({
      name: 'calls and requests without an answer',
      meaning: 'Each is answered.',
      violations: failed.length,
      note: `${count(sent)} sent`,
      examples: [...new Set(failed)].slice(0, MAX_EXAMPLES),
    })
    const totals = await calls.totals()
    ctx.check(effects('calls', totals.calls))
    ctx.check(effects('requests', totals.requests))
    calls.close()
  },
})

const NAMES: Readonly<Record<ProxyKind, string>> = {
  helper: 'two bare Hono proxies',
  http: 'two Hono proxies that use node:http',
}
const RATIOS: Readonly<Record<ProxyKind, string>> = {
  helper: '(calls − bare Hono proxies) / requests',
  http: '(calls − proxies that use node:http) / requests',
}
const ABOVE = 'p50 of a call over a node that is not the owner, less p50 of a request, at most'
const GOALS: Readonly<Record<string, number>> = { [RATIOS.helper]: 1.2, [ABOVE]: 8 }

/** CPU time of control and of all nodes, per second, while `work` runs. */
async function usageDuring<T>(ctx: RunContext, work: () => Promise<T>) {
  const read = async () => ({
    at: performance.now() / 1000,
    control: await cpuSeconds(ctx, ctx.local.controls),
    nodes: await cpuSeconds(ctx, ctx.local.nodes),
  })
  const before = await read()
  const result = await work()
  const after = await read()
  const seconds = after.at - before.at
  return {
    result,
    seconds,
    control: (after.control - before.control) / seconds,
    nodes: (after.nodes - before.nodes) / seconds,
  }
}

/** The check that each room has applied what it has answered once, and nothing else. */
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
  return {
    name: `${what}: effects`,
    meaning: 'The effect of each is in the state of its room once.',
    violations: wrong.length,
    note: `${count(rooms.reduce((sum, { answers }) => sum + answers.length, 0))} answers of ${rooms.length} rooms`,
    examples: wrong.slice(0, MAX_EXAMPLES),
  }
}
