import { describe, expect, it } from 'vitest'
import { isFullLength } from '../support/run-length.ts'
import { type Choice, type Explorable, explore, type Fault, replay } from './explorer.ts'
import type { Promised } from './ledger.ts'
import { type MUTATIONS, model, mutation, SCENARIOS } from './scenarios.ts'

/** How many deviations from the ordinary each run may have here; `npm run explore` goes further. */
const DEVIATIONS = 1
const PATIENCE_MS = 240_000

/** What these do the others do as well: each way of `owned` is one of `saved`. */
const WITHIN_OTHERS = ['owned']
/** The simulated world hands rooms over at each drain, too. */
const LONG = ['drained']
/** Faults by which a node outlives its lease. To the fence of a room, `replace` is a `pause` during which another process claims the room. */
const BEYOND_THE_LEASE: readonly Fault[] = ['late', 'slow', 'pause', 'cut', 'outage', 'deaf']

describe('the ownership of a room', () => {
  for (const name of Object.keys(SCENARIOS).filter((each) => !WITHIN_OTHERS.includes(each)))
    it.skipIf(LONG.includes(name) && !isFullLength())(
      `keeps its promises whatever goes wrong once, anywhere: ${name}`,
      async () => {
        const report = await explore(() => model(SCENARIOS[name]!), { deviations: DEVIATIONS })
        expect(report.fault).toBeUndefined()
        expect(report.complete).toBe(true)
        // A model that cannot go wrong would prove nothing.
        expect(report.ends).toBeGreaterThan(10)
      },
      PATIENCE_MS,
    )
})

describe('a mistake in it is found', () => {
  const cases: [
    keyof typeof MUTATIONS,
    keyof typeof SCENARIOS,
    Promised,
    { readonly known?: Promised[]; readonly faults?: Fault[] }?,
  ][] = [
    ['unfenced', 'owned', 'chain'],
    ['trusting', 'owned', 'lease'],
    ['repeating', 'owned', 'chain'],
    ['hopeful', 'owned', 'committed'],
    // With all faults, the explorer gets to this one last.
    ['early', 'asked', 'members'],
    ['grabbing', 'opened', 'chain', { faults: ['slow'] }],
    // What the next owner does not know of its timers it does not have in its history either.
    ['refiring', 'timed', 'timers', { known: ['chain'] }],
    ['forgetful', 'timed', 'timers', { known: ['chain'] }],
    ['unreserving', 'timed', 'reservations', { known: ['chain'] }],
  ]
  for (const [name, scenario, promised, { known, faults } = {}] of cases)
    it(
      `${name}: breaks the promise "${promised}"`,
      async () => {
        const parts = { ...SCENARIOS[scenario]!, ...(faults && { faults }) }
        const create = () => model(parts, mutation(name), known)
        const { fault } = await explore(create, { deviations: DEVIATIONS })
        expect(fault?.violations.map((violation) => violation.promised)).toContain(promised)
        // The reader can see it again.
        expect(await replay(create, fault!.choices)).toEqual(fault)
      },
      PATIENCE_MS,
    )

  it(
    'trusting: commits still make one chain, because the fence decides and not the lease',
    async () => {
      const scenario = { ...SCENARIOS.saved!, faults: BEYOND_THE_LEASE }
      const create = () => model(scenario, mutation('trusting'), ['lease'])
      const report = await explore(create, { deviations: DEVIATIONS })
      expect([report.fault, report.complete]).toEqual([undefined, true])
    },
    PATIENCE_MS,
  )
})

describe('the explorer', () => {
  /** Three steps, each with two ways; the state is what was chosen, or nothing. */
  class Steps implements Explorable {
    static readonly seen = new Set<string>()
    readonly #remembers: boolean
    readonly explored = true
    readonly violations = []
    path = ''

    constructor(remembers: boolean) {
      this.#remembers = remembers
    }

    get over() {
      return this.path.length === 3
    }

    get digest() {
      return this.#remembers ? this.path : `${this.path.length}`
    }

    choices(): Choice[] {
      const step = (way: string, cost: number): Choice => ({
        label: way,
        cost,
        take: () => {
          this.path += way
        },
      })
      return [step('0', 0), step('1', 1)]
    }

    async finish() {
      Steps.seen.add(this.path)
    }
  }

  it('goes every way with at most so many deviations, once', async () => {
    for (const [deviations, paths] of [
      [0, '000'],
      [1, '000 001 010 100'],
      [2, '000 001 010 011 100 101 110'],
      [3, '000 001 010 011 100 101 110 111'],
    ] as const) {
      Steps.seen.clear()
      const report = await explore(() => new Steps(true), { deviations })
      expect([...Steps.seen].sort().join(' ')).toBe(paths)
      expect([report.executions, report.complete]).toEqual([paths.split(' ').length, true])
    }
  })

  it('goes no further from a state that it has met with as many deviations left', async () => {
    Steps.seen.clear()
    const report = await explore(() => new Steps(false), { deviations: 1 })
    expect([...Steps.seen].sort()).toEqual(['000', '001'])
    expect([report.states, report.ends]).toEqual([3, 1])
  })
})
