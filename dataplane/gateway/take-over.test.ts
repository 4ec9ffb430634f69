import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { TestRecords } from '../../test/support/gateway/test-records.ts'
import { SeededRandom } from '../../test/support/seeded-random.ts'
import { MessagePace } from './message-pace.ts'
import { GATEWAY_METRICS } from './metrics.ts'
import { gatewayOptions } from './options.ts'
import { newResumeToken } from './resume-token.ts'
import { Session } from './session.ts'
import { SessionKeeper } from './session-keeper.ts'
import { SessionStore } from './session-store.ts'
import { takeOver } from './take-over.ts'

const CLAIMS = {
  project_id: 'prj_one',
  key_id: 'key_a',
  issued_at: '2026-01-01T00:00:00.000Z',
  expires_at: '2026-01-01T01:00:00.000Z',
}

/** What became of a claimant: let in (and told so), told to go, or told to come again. */
type Outcome = 'welcome' | 'session_taken_over' | 'resume_failed' | 'overloaded' | 'lost'

/** A session whose client is away, two nodes, and a store whose answers take their time. */
class Race {
  readonly clock = new FakeClock()
  readonly random: SeededRandom
  readonly records: TestRecords
  readonly store: SessionStore
  /** Who has been welcome, in order. */
  readonly welcomes: string[] = []
  #token = ''

  constructor(seed: number) {
    this.random = new SeededRandom(seed * 2654435761)
    this.records = new TestRecords(memoryStore({ clock: this.clock }).records, this.clock, this.random)
    this.store = new SessionStore(this.records)
  }

  async begin(): Promise<void> {
    const { resume_token: resumeToken, right } = newResumeToken(this.random)
    this.#token = resumeToken
    const record = {
      session_id: 'ses_one',
      claims: CLAIMS,
      node_id: 'node_a',
      right,
      seats: [],
      connected_at: 0,
      detached: true,
    }
    await this.store.save(record, 0, 60_000)
    this.records.delayMs = 20
  }

  /** One client with the session's token at one node: comes at a random moment, and says that it has its `welcome` a while after it. */
  async claim(nodeId: string, lateMs = 30): Promise<Outcome> {
    const { clock, random, store } = this
    await this.wait(random.float() * lateMs)
    const parts = {
      nodeId,
      clock,
      random,
      store,
      tokens: { checkKey: async () => undefined },
      ttlMs: 180_000,
      patienceMs: 5000,
      nodeGone: () => false,
      waiting: new Set<string>(),
      maxResumeWaits: 256,
      metrics: registerMetrics(new Registry(), GATEWAY_METRICS),
      rewrite: async () => false,
      storeIsBehind: async () => false,
    }
    const claimant = {
      projectId: 'prj_one',
      sessionId: 'ses_one',
      resumeToken: this.#token,
      open: () => true,
    }
    const taken = await takeOver(parts, claimant).catch((error: unknown) => {
      if (error instanceof StoreUnavailable) return { close: 'overloaded' as const, reason: '' }
      throw error
    })
    if (!taken) return 'lost'
    if ('close' in taken) return taken.close as Outcome
    const { claims, right } = taken.record
    const session = new Session({
      sessionId: 'ses_one',
      claims,
      right,
      pace: new MessagePace(clock, gatewayOptions().limits),
      clock,
    })
    const keeper = new SessionKeeper(
      { nodeId, clock, random, store, sessionResumeTtl: 60 },
      session,
      taken.version,
    )
    // The rooms answer, the client is welcome, and its receipt comes back.
    await this.wait(random.float() * 2000)
    this.welcomes.push(nodeId)
    await this.wait(random.float() * 200)
    session.confirm()
    return (await keeper.save()) ? 'welcome' : 'session_taken_over'
  }

  wait(ms: number): Promise<void> {
    return new Promise((resolve) => void this.clock.schedule(ms, resolve))
  }

  /** Lets time pass until all have come to an end. */
  async run<T>(claims: readonly Promise<T>[]): Promise<T[]> {
    let over = false
    const all = Promise.all(claims).finally(() => {
      over = true
    })
    while (!over) {
      this.clock.advance(2)
      await new Promise(setImmediate)
    }
    return all
  }
}

const SEEDS = Array.from({ length: 200 }, (_, seed) => seed + 1)

async function race(seed: number, faults: (race: Race) => readonly Promise<unknown>[] = () => []) {
  const race = new Race(seed)
  await race.begin()
  const claims = [race.claim('node_a'), race.claim('node_b')]
  const outcomes = await race.run([...claims, ...faults(race)])
  return { race, outcomes: outcomes.slice(0, 2) as Outcome[] }
}

describe('two resumes with one token at two nodes', () => {
  it('let exactly one in and tell the other that it was taken over, whatever the order of reads and writes', async () => {
    const winners = new Set<string>()
    for (const seed of SEEDS) {
      const { race: done, outcomes } = await race(seed)
      expect({ seed, outcomes: outcomes.sort() }).toEqual({
        seed,
        outcomes: ['session_taken_over', 'welcome'],
      })
      expect({ seed, welcomes: done.welcomes.length }).toEqual({ seed, welcomes: 1 })
      winners.add(done.welcomes[0]!)
    }
    expect([...winners].sort()).toEqual(['node_a', 'node_b'])
  })

  it('let at most one in when answers of the store are lost, and nobody is locked out', async () => {
    const seen = new Set<Outcome>()
    for (const seed of SEEDS) {
      const faults = (race: Race): Promise<unknown>[] => [
        race.wait(race.random.float() * 60).then(async () => {
          race.records.answersLost = 1
          await race.wait(race.random.float() * 20)
          race.records.down = true
          await race.wait(race.random.float() * 60)
          race.records.down = false
          race.records.answersLost = 0
        }),
      ]
      const { race: done, outcomes } = await race(seed, faults)
      expect({ seed, fits: done.welcomes.length <= 1 }).toEqual({ seed, fits: true })
      if (done.welcomes.length === 0) {
        // Both were told to come again, and so they do.
        expect({ seed, outcomes }).toEqual({ seed, outcomes: ['overloaded', 'overloaded'] })
        const [outcome] = await done.run([done.claim('node_b')])
        expect({ seed, outcome }).toEqual({ seed, outcome: 'welcome' })
      }
      for (const outcome of outcomes) seen.add(outcome)
    }
    expect([...seen].sort()).toEqual(['overloaded', 'session_taken_over', 'welcome'])
  })
})
