import type { Answers, Totals } from '../clients/calls.ts'
import * as option from '../option-kinds.ts'
import type { Check } from '../result.ts'
import { defineScenario, type RunContext } from '../scenario.ts'
import { quantile } from '../text.ts'
import { cpuSeconds } from './cpu.ts'

const MAX_EXAMPLES = 5
const OPENED_PER_SECOND = 100
/** Longest time in which the idle service is measured. */
const IDLE_SECONDS = 10

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
    const { calls, local } = ctx
    const [controls, nodes] = [['control-1'], local.nodes]
    const perSecond = projects * rate
    const pace = { perSecond, seconds }
    await ctx.phase('open', (projects * rooms) / OPENED_PER_SECOND, () =>
      calls.open({ projects, rooms, perSecond: OPENED_PER_SECOND }),
    )
    const chain = await ctx.proxies()
    // Code and caches for the first calls are not part of their cost.
    await ctx.phase('warm', 6, async () => {
      const warm = { perSecond, seconds: 2 }
      await calls.call(warm)
      await calls.callAt(chain.url, warm)
      await calls.request(warm)
    })
    const idleFor = Math.min(seconds, IDLE_SECONDS)
    const ofRuns = new Map<string, number[]>()
    const note = (name: string, value: number): number => {
      ofRuns.set(name, [...(ofRuns.get(name) ?? []), value])
      return value
    }
    const all: Answers[] = []
    for (let run = 1; run <= ctx.runs; run++) {
      const idle = await ctx.phase(`idle ${run}`, idleFor, async () => {
        const used = { control: controls, nodes }
        const { cpu } = await cpuOf(ctx, used, () => ctx.pass(idleFor))
        return { control: cpu.control / idleFor, nodes: cpu.nodes / idleFor }
      })
      /** CPU milliseconds of 1,000 answers, without what the idle service uses. */
      const perThousand = async (work: () => Promise<Answers>) => {
        const began = performance.now()
        const { cpu, answers } = await cpuOf(ctx, { control: controls, nodes }, work)
        const took = (performance.now() - began) / 1000
        const each = 1e6 / Math.max(1, answers.times.length)
        return {
          control: each * (cpu.control - idle.control * took),
          nodes: each * (cpu.nodes - idle.nodes * took),
          answers,
        }
      }
      const called = await ctx.phase(`calls ${run}`, seconds, () => perThousand(() => calls.call(pace)))
      const before = await chain.cpuSeconds()
      const forwarded = await ctx.phase(`proxies ${run}`, seconds, () => calls.callAt(chain.url, pace))
      const after = await chain.cpuSeconds()
      const requested = await ctx.phase(`requests ${run}`, seconds, () =>
        perThousand(() => calls.request(pace)),
      )
      all.push(called.answers, requested.answers)
      const eachForwarded = 1e6 / Math.max(1, forwarded.times.length)
      const ofCalls = note(CPU.control, called.control) + note(CPU.nodes, called.nodes)
      const ofProxies = note(CPU.proxies, eachForwarded * (after.proxies - before.proxies))
      note(CPU.server, eachForwarded * (after.server - before.server))
      const ofRequests = note(CPU.requests, requested.control + requested.nodes)
      note(RATIO, (ofCalls - ofProxies) / ofRequests)
      for (const [name, { times }] of [
        ['call', called.answers],
        ['request of a player', requested.answers],
      ] as const)
        for (const percent of [50, 99]) note(`${name}, p${percent}`, quantile(times, percent / 100))
      // Half of the calls or more meet a node that is not the owner, so their median is at most the third quartile of all.
      note(ABOVE, quantile(called.answers.times, 0.75) - quantile(requested.answers.times, 0.5))
    }
    chain.close()
    for (const [name, values] of ofRuns) {
      const goal = GOALS[name]
      ctx.samples({
        name,
        unit: UNITS[name] ?? 'ms',
        values,
        ...(goal !== undefined && { goal: { value: goal } }),
      })
    }
    const sent = all.reduce((sum, answers) => sum + answers.sent, 0)
    const failed = all.flatMap((answers) => answers.failed)
    ctx.figure({ name: 'delivered', value: 100 * (1 - failed.length / Math.max(1, sent)), unit: '%' })
    ctx.check({
      name: 'calls and requests without an answer',
      meaning: 'Each is answered.',
      violations: failed.length,
      note: `${sent} sent`,
      examples: [...new Set(failed)].slice(0, MAX_EXAMPLES),
    })
    const totals = await calls.totals()
    ctx.check(effects('calls', totals.calls))
    ctx.check(effects('requests', totals.requests))
    calls.close()
  },
})

const RATIO = '(calls − proxies) / requests'
const ABOVE = 'p50 of a call over a node that is not the owner, less p50 of a request, at most'
const CPU = {
  control: 'CPU of control for 1,000 calls',
  nodes: 'CPU of the nodes for 1,000 calls',
  proxies: 'CPU of two bare Hono proxies for 1,000 calls',
  server: 'CPU of the server behind the proxies',
  requests: 'CPU of the nodes for 1,000 requests of players',
} as const
const GOALS: Readonly<Record<string, number>> = { [RATIO]: 1.2, [ABOVE]: 8 }
const UNITS: Readonly<Record<string, string>> = { [RATIO]: '' }

/** CPU seconds of groups of processes while `work` runs. */
async function cpuOf<Group extends string, T>(
  ctx: RunContext,
  groups: Readonly<Record<Group, readonly string[]>>,
  work: () => Promise<T>,
): Promise<{ readonly cpu: Readonly<Record<Group, number>>; readonly answers: T }> {
  const read = async () => {
    const names = Object.keys(groups) as Group[]
    return Promise.all(names.map(async (name) => [name, await cpuSeconds(ctx, groups[name])] as const))
  }
  const before = await read()
  const answers = await work()
  const after = await read()
  const cpu = Object.fromEntries(after.map(([name, seconds], at) => [name, seconds - before[at]![1]]))
  return { cpu: cpu as Record<Group, number>, answers }
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
    note: `${rooms.reduce((sum, { answers }) => sum + answers.length, 0)} answers of ${rooms.length} rooms`,
    examples: wrong.slice(0, MAX_EXAMPLES),
  }
}
