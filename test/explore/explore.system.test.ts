import { describe, expect, it } from 'vitest'
import { isFullLength } from '../support/run-length.ts'
import { type Choice, type Explorable, explore, type Fault, replay } from './explorer.ts'
import type { Guarantee } from './ledger.ts'
import { type MUTATIONS, model, mutation, SCENARIOS } from './scenarios.ts'

/** Largest number of deviations in a run of these tests. `npm run explore` can use more. */
const DEVIATIONS = 1
const PATIENCE_MS = 240_000

/** Scenarios that others contain: each run of `owned` is also a run of `saved`. */
const WITHIN_OTHERS = ['owned']
/** Scenarios of the full length only. The simulated world also tests the handoff of a drain. */
const LONG = ['drained']
/** Faults after which a node continues without a lease. For a room's fence, `replace` equals a `pause` with a claim by another process. */
const BEYOND_THE_LEASE: readonly Fault[] = ['late', 'slow', 'pause', 'cut', 'outage', 'deaf']

describe('Ownership', () => {
  for (const name of Object.keys(SCENARIOS).filter((each) => !WITHIN_OTHERS.includes(each)))
    it.skipIf(LONG.includes(name) && !isFullLength())(
      `keeps all guarantees in each run with one deviation: ${name}`,
      async () => {
        const report = await explore(() => model(SCENARIOS[name]!), { deviations: DEVIATIONS })
        expect(report.fault).toBeUndefined()
        expect(report.complete).toBe(true)
        // With fewer ends, the model would have no deviations to explore.
        expect(report.ends).toBeGreaterThan(10)
      },
      PATIENCE_MS,
    )
})

describe('explore finds the mistake', () => {
  const cases: [
    keyof typeof MUTATIONS,
    keyof typeof SCENARIOS,
    Guarantee,
    { readonly known?: Guarantee[]; readonly faults?: Fault[] }?,
  ][] = [
    ['unfenced', 'owned', 'chain'],
    ['trusting', 'owned', 'lease'],
    ['repeating', 'owned', 'chain'],
    ['hopeful', 'owned', 'committed'],
    // Without these lists of faults, the explorer would reach the mistakes last.
    ['early', 'asked', 'members', { faults: ['late'] }],
    ['grabbing', 'opened', 'chain', { faults: ['slow'] }],
    // A new owner that does not know its timers also continues with another state, which breaks the chain.
    ['refiring', 'timed', 'timers', { known: ['chain'] }],
    ['forgetful', 'timed', 'timers', { known: ['chain'] }],
    ['unreserving', 'timed', 'reservations', { known: ['chain'] }],
  ]
  for (const [name, scenario, guarantee, { known, faults } = {}] of cases)
    it(
      `${name}, which breaks the guarantee ${guarantee}, and replays it`,
      async () => {
        const parts = { ...SCENARIOS[scenario]!, ...(faults && { faults }) }
        const create = () => model(parts, mutation(name), known)
        const { fault } = await explore(create, { deviations: DEVIATIONS })
        expect(fault?.violations.map((violation) => violation.guarantee)).toContain(guarantee)
        expect(await replay(create, fault!.choices)).toEqual(fault)
      },
      PATIENCE_MS,
    )

  it(
    'commits form one chain with the mistake trusting, because the fence protects them',
    async () => {
      const scenario = { ...SCENARIOS.saved!, faults: BEYOND_THE_LEASE }
      const create = () => model(scenario, mutation('trusting'), ['lease'])
      const report = await explore(create, { deviations: DEVIATIONS })
      expect([report.fault, report.complete]).toEqual([undefined, true])
    },
    PATIENCE_MS,
  )
})

describe('explore', () => {
  /** Three steps with two choices each. With `remembers` the state is the path so far, otherwise the number of steps. */
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

  it('makes each run with at most N deviations once', async () => {
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

  it('does not continue from a state that it has met with as many deviations left', async () => {
    Steps.seen.clear()
    const report = await explore(() => new Steps(false), { deviations: 1 })
    expect([...Steps.seen].sort()).toEqual(['000', '001'])
    expect([report.states, report.ends]).toEqual([3, 1])
  })
})
