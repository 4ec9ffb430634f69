import { vi } from 'vitest'
import type { GatewayOptions } from '../../../dataplane/gateway/context.ts'
import { type Clock, sleep } from '../../../shared/clock.ts'
import { type Random, systemRandom } from '../../../shared/random.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import {
  type Lease,
  type LeaseRenewal,
  type Records,
  type StoredRecord,
  StoreUnavailable,
  type Write,
} from '../../../shared/store/port.ts'
import { FakeClock } from '../../kit/fake-clock.ts'
import { TestControl, TestGateway } from './test-gateway.ts'
import { TestOwner, testCodecs } from './test-owner.ts'

/** Two nodes' gateways, `node_a` and `node_b`, with one store, one control and one owner of all rooms. */
export class TestPair {
  readonly a: TestGateway
  readonly b: TestGateway
  readonly clock: FakeClock
  readonly owner: TestOwner
  readonly records: TestRecords
  /** While set, nodes do not hear that a session was taken. */
  deaf = false
  /** The node that has all rooms of every session at `node_a`, with its address. */
  nearer: { readonly nodeId: string; readonly url: string } | undefined
  /** How long ago the store came back empty. */
  storeUptimeMs = Number.POSITIVE_INFINITY
  /** Nodes that seem to have ended, and those of them whose lease has run out. */
  readonly gone = new Set<string>()
  readonly dead = new Set<string>()

  private constructor(parts: Pick<TestPair, 'a' | 'b' | 'clock' | 'owner' | 'records'>) {
    this.a = parts.a
    this.b = parts.b
    this.clock = parts.clock
    this.owner = parts.owner
    this.records = parts.records
  }

  /** `records`: where sessions are written down; in memory if nothing is said. */
  static async start(options: Partial<GatewayOptions> = {}, records?: Records): Promise<TestPair> {
    const clock = new FakeClock()
    const world = { clock, control: await TestControl.start(), owner: new TestOwner(testCodecs()) }
    const shared = new TestRecords(records ?? memoryStore({ clock }).records, clock, systemRandom)
    const start = (nodeId: string): Promise<TestGateway> =>
      TestGateway.start(
        options,
        {
          nodeId,
          records: shared,
          storeIsBehind: async (ms) => pair.storeUptimeMs < ms,
          reroutes: () => pair.nearer !== undefined,
          nearerNode: ({ length }) => (nodeId === 'node_a' && length > 0 ? pair.nearer : undefined),
          nodeGone: (other) => pair.gone.has(other),
          nodeDead: async (nodeId) => pair.dead.has(nodeId),
          tellTaken: (nodeId, sessionId) => {
            if (!pair.deaf) void pair.gateway(nodeId).gateway.sessionTaken(sessionId)
          },
        },
        world,
      )
    const parts = { a: await start('node_a'), b: await start('node_b'), clock, owner: world.owner }
    const pair: TestPair = new TestPair({ ...parts, records: shared })
    world.owner.deliver = (message) => {
      pair.a.gateway.receive(message)
      pair.b.gateway.receive(message)
    }
    return pair
  }

  gateway(nodeId: string): TestGateway {
    return nodeId === 'node_a' ? this.a : this.b
  }

  /** Lets `ms` pass, and whatever falls due with it be done. */
  async pass(ms: number, stepMs = ms): Promise<void> {
    for (let passed = 0; passed < ms; passed += stepMs) {
      this.clock.advance(stepMs)
      await new Promise(setImmediate)
    }
  }

  /** Lets time pass, about as fast as it does for the sockets, until `work` is done. */
  async meanwhile<T>(work: Promise<T>): Promise<T> {
    let over = false
    const done = work.finally(() => {
      over = true
    })
    const tick = (): boolean => {
      this.clock.advance(5)
      return over
    }
    await vi.waitUntil(tick, { interval: 5, timeout: 15_000 })
    return done
  }

  async close(): Promise<void> {
    await this.meanwhile(Promise.all([this.a.close(), this.b.close()]))
  }
}

/** Records behind a connection that is slow, breaks, or loses answers, as the test wants it. */
export class TestRecords implements Records {
  /** Everything that was written, oldest first: keys. */
  readonly written: string[] = []
  /** Nothing gets through while set. */
  down = false
  /** The next so many writes take place, and their answers are lost. */
  answersLost = 0
  /** Each way takes up to this long, a random time for each call. */
  delayMs = 0
  /** How often something was read. */
  reads = 0
  /** How many writes are under way. */
  writing = 0
  /** How many were at the most. */
  mostWriting = 0
  #records: Records
  readonly #clock: Clock
  readonly #random: Random

  constructor(records: Records, clock: Clock, random: Random) {
    this.#records = records
    this.#clock = clock
    this.#random = random
  }

  /** Other records stand behind the connection from now on, as when a store comes back without its data. */
  replace(records: Records): void {
    this.#records = records
  }

  read(keys: readonly string[]): Promise<(StoredRecord | undefined)[]> {
    return this.#through(() => {
      this.reads += 1
      return this.#records.read(keys)
    })
  }

  async write(writes: readonly Write[]): Promise<boolean> {
    this.writing += 1
    this.mostWriting = Math.max(this.mostWriting, this.writing)
    try {
      return await this.#through(async () => {
        const done = await this.#records.write(writes)
        for (const write of writes) if ('put' in write && done) this.written.push(write.put)
        if (this.answersLost > 0) {
          this.answersLost -= 1
          throw new StoreUnavailable('the answer was lost')
        }
        return done
      })
    } finally {
      this.writing -= 1
    }
  }

  renewLease(renewal: LeaseRenewal): Promise<Lease> {
    return this.#through(() => this.#records.renewLease(renewal))
  }

  page(index: string, options: { before?: string; limit: number }): Promise<string[]> {
    return this.#through(() => this.#records.page(index, options))
  }

  async #through<T>(work: () => Promise<T>): Promise<T> {
    if (this.down) throw new StoreUnavailable('the store is down')
    await this.#way()
    const answer = await work()
    await this.#way()
    return answer
  }

  async #way(): Promise<void> {
    if (this.delayMs === 0) return
    const delayMs = this.#random.float() * this.delayMs
    await sleep(this.#clock, delayMs)
  }
}
