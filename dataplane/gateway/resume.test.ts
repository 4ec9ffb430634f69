import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import {
  expectClose,
  gatewayContext,
  type TestClient,
  TestGateway,
} from '../../test/support/gateway/test-gateway.ts'
import { runLength } from '../../test/support/run-length.ts'
import { TestRecords } from '../../test/support/test-store.ts'
import type { Connection } from './connection.ts'
import { Edge } from './edge.ts'
import { Handshake } from './handshake.ts'
import { Players } from './players.ts'
import { newResumeToken } from './resume-token.ts'
import { SessionStore } from './session-store.ts'
import { Sessions } from './sessions.ts'

let test: TestGateway

/** The frames that a client got, without values that differ between runs. */
const kinds = (client: TestClient): unknown[] =>
  client.received.map((message) => ('seq' in message ? [message.t, message.seq] : message.t))

describe('at one node', () => {
  beforeEach(async () => {
    test = await TestGateway.start()
  })
  afterEach(() => test.close())

  describe('a session that lost its connection', () => {
    it('gets no room frame before welcome, and misses none while its rooms have not answered', async () => {
      const one = await test.join('one')
      one.client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
      const two = await one.client.next('state.snapshot')
      await test.owner.lose(one.client)
      test.owner.room('one').flush({ state: { count: 1 } })
      test.owner.silent.add('attach')
      const attaching = test.owner.next('attach')
      const again = await test.resume(one.welcome, [one.snapshot, two])
      await attaching
      const [first, second] = test.owner.of('attach')
      // Not attached yet: updates of this time are among the missed ones.
      test.owner.room('one').flush({ state: { count: 2 }, events: [['hit', 2]] })
      test.owner.answer(first!)
      // Only one of its rooms has answered.
      test.owner.room('one').flush({ state: { count: 3 } })
      test.owner.answer(second!)
      test.owner.room('two').flush({ state: { count: 9 } })
      await again.next('state.patch', ({ room_id: roomId }) => roomId === 'arena:two')
      expect(kinds(again)).toEqual([
        'welcome',
        ['state.patch', 2],
        ['state.patch', 3],
        'event',
        ['state.patch', 4],
        ['state.patch', 2],
      ])
    })

    it('ends with a goodbye that arrives before welcome, also if the client closes the socket immediately', async () => {
      const { client, welcome, snapshot, joined } = await test.join()
      await test.owner.lose(client)
      const gone = test.owner.next('leave')
      const again = await test.resume(welcome, [snapshot])
      again.send({ t: 'goodbye' })
      again.ws.close()
      expect(await gone).toMatchObject({ member_id: joined.member_id, reason: 'left' })
      await expectClose(await test.resume(welcome), 'resume_failed', /no such session/)
    })

    it('gets welcome before any owner has answered, and the frames when the owner answers', async () => {
      const { client, welcome, snapshot } = await test.join()
      await test.owner.lose(client)
      test.owner.silent.add('attach')
      const attaching = test.owner.next('attach')
      const again = await test.resume(welcome, [snapshot])
      await attaching
      await again.next('welcome')
      test.clock.advance(3000)
      // The edge repeats its question; one answer is enough.
      test.owner.answer(test.owner.of('attach').at(-1)!)
      test.owner.room('one').flush({ state: { count: 5 } })
      expect(await again.next('state.patch')).toMatchObject({ seq: 2 })
    })

    it('can be resumed with the same token if it was lost before welcome, and only the last attach counts', async () => {
      const { client, welcome, snapshot } = await test.join()
      await test.owner.lose(client)
      const room = test.owner.room('one')
      room.flush({ state: { count: 1 }, events: [['hit', 1]] })
      test.owner.silent.add('attach')
      let attaching = test.owner.next('attach')
      const second = await test.resume(welcome, [snapshot])
      await attaching
      await test.owner.lose(second)
      attaching = test.owner.next('attach')
      const third = await test.resume(welcome, [snapshot])
      await attaching

      // The owner handles the first attach, the detach and the second attach only now, while the room has continued.
      const [before, last] = test.owner.of('attach')
      test.owner.answer(before!)
      room.flush({ state: { count: 2 }, events: [['hit', 2]] })
      const { deliver } = test.owner
      test.owner.deliver = () => {}
      room.flush({ state: { count: 3 }, events: [['hit', 3]] })
      test.owner.deliver = deliver
      test.owner.answer(last!)

      await third.roundTrip()
      const missed = [2, 3, 4].flatMap((seq) => [['state.patch', seq], 'event'])
      expect(kinds(third)).toEqual(['welcome', ...missed, 'pong'])
    })
  })

  describe('a resume token', () => {
    it('is valid while control is unavailable, if the key was valid lately', async () => {
      const { client, welcome } = await test.join()
      await test.owner.lose(client)
      test.control.down = true
      test.clock.advance(59_000)
      const again = await test.resume(welcome)
      await again.next('welcome')
    })
  })
})

const CLAIMS = {
  project_id: 'prj_one',
  key_id: 'key_a',
  issued_at: '2026-01-01T00:00:00.000Z',
  expires_at: '2026-01-01T01:00:00.000Z',
}

/** Result of a claimant: admitted (and welcomed), rejected for good, or asked to try again. */
type Outcome = 'welcome' | 'session_taken_over' | 'resume_failed' | 'overloaded' | 'lost'

/** A session whose client is disconnected, two nodes, and a store with slow answers. */
class Race {
  readonly clock = new FakeClock()
  readonly random: SeededRandom
  readonly records: TestRecords
  readonly store: SessionStore
  /** The welcomed claimants, in order. */
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
      ended: [],
      connected_at: 0,
      detached: true,
    }
    await this.store.save(record, 0, 60_000)
    this.records.delayMs = 20
  }

  /** One client with the session’s token at one node: connects at a random time, and confirms its `welcome` a while later. */
  async claim(nodeId: string, lateMs = 30): Promise<Outcome> {
    const { random } = this
    await this.wait(random.float() * lateMs)
    const { handshake, sessions } = this.#node(nodeId)
    const connection: Partial<Connection> = { open: true, wanted: true, close: () => {} }
    const admitted = await handshake.greet(connection as Connection, {
      t: 'hello',
      project_id: 'prj_one',
      resume: { session_id: 'ses_one', resume_token: this.#token, rooms: [] },
    })
    if (!admitted) return 'lost'
    if ('close' in admitted) return admitted.close as Outcome
    const { session } = admitted
    // The rooms answer, the client gets its welcome, and its confirmation arrives.
    await this.wait(random.float() * 2000)
    this.welcomes.push(nodeId)
    await this.wait(random.float() * 200)
    session.confirm()
    return (await sessions.save(session)) ? 'welcome' : 'session_taken_over'
  }

  #node(nodeId: string) {
    const context = gatewayContext({ nodeId, clock: this.clock, random: this.random })
    const edge = new Edge(context, async () => true)
    const players = new Players(context, this.records, () => {})
    const sessions = new Sessions(context, this.store, edge, players)
    const tokens = { check: async () => CLAIMS, checkKey: async () => undefined, revoked: () => undefined }
    return { sessions, handshake: new Handshake(context, tokens, edge, this.store, sessions, players) }
  }

  wait(ms: number): Promise<void> {
    return new Promise((resolve) => void this.clock.schedule(ms, resolve))
  }

  /** Lets time pass until all claimants have finished. */
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

const SEEDS = Array.from({ length: runLength(40, 200) }, (_, seed) => seed + 1)

async function race(seed: number, faults: (race: Race) => readonly Promise<unknown>[] = () => []) {
  const race = new Race(seed)
  await race.begin()
  const claims = [race.claim('node_a'), race.claim('node_b')]
  const outcomes = await race.run([...claims, ...faults(race)])
  return { race, outcomes: outcomes.slice(0, 2) as Outcome[] }
}

describe('two resumes with one token at two nodes', () => {
  it('admit exactly one client and reject the other as taken over, whatever the order of reads and writes', async () => {
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

  it('admit at most one client if answers of the store are lost, and no client is locked out', async () => {
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
        // Both were asked to try again, and do so.
        expect({ seed, outcomes }).toEqual({ seed, outcomes: ['overloaded', 'overloaded'] })
        const [outcome] = await done.run([done.claim('node_b')])
        expect({ seed, outcome }).toEqual({ seed, outcome: 'welcome' })
      }
      for (const outcome of outcomes) seen.add(outcome)
    }
    expect([...seen].sort()).toEqual(['overloaded', 'session_taken_over', 'welcome'])
  })
})
