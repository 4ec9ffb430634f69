import { vi } from 'vitest'
import type { GatewayOptions } from '../../../dataplane/gateway/context.ts'
import { systemRandom } from '../../../shared/random.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import type { Records } from '../../../shared/store/port.ts'
import { FakeClock } from '../../kit/fake-clock.ts'
import { TestRecords } from '../test-records.ts'
import { TestControl, TestGateway } from './test-gateway.ts'
import { TestLists } from './test-lists.ts'
import { TestOwner, testCodecs } from './test-owner.ts'

/** Two nodes' gateways, `node_a` and `node_b`, with one store, one control and one owner of all rooms. */
export class TestPair {
  readonly a: TestGateway
  readonly b: TestGateway
  readonly clock: FakeClock
  readonly owner: TestOwner
  readonly records: TestRecords
  readonly lists = new TestLists()
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
          directory: {
            rooms: (list, query, allows) => pair.lists.rooms(list, query, allows),
            watch: (...query) => pair.lists.watch(...query),
          },
          cluster: {
            nodes: {
              isGone: (other) => pair.gone.has(other),
              isDead: async (nodeId) => pair.dead.has(nodeId),
              storeIsBehind: async (ms) => pair.storeUptimeMs < ms,
            },
            reroutes: () => pair.nearer !== undefined,
            nearerNode: ({ length }) => (nodeId === 'node_a' && length > 0 ? pair.nearer : undefined),
            tellTaken: (nodeId, ...taken) => {
              if (!pair.deaf) void pair.gateway(nodeId).gateway.sessionTaken(...taken)
            },
          },
        },
        world,
      )
    const parts = { a: await start('node_a'), b: await start('node_b'), clock, owner: world.owner }
    const pair: TestPair = new TestPair({ ...parts, records: shared })
    world.owner.deliver = (message) => {
      pair.a.gateway.edge.receive(message)
      pair.b.gateway.edge.receive(message)
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
