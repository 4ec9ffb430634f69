import { pino } from 'pino'
import { Registry } from 'prom-client'
import type { AdminOptions } from '../../dataplane/ops/admin.ts'
import { FakeClock } from '../kit/fake-clock.ts'
import { SeededRandom } from '../kit/seeded-random.ts'
import { answerOf } from './gateway/test-gateway.ts'

const NOTHING = { items: [], found: 0, total: 0 }

type NodeDescription = ReturnType<AdminOptions['describeNode']>

/** A node without load, as operators see it. */
export const nodeDescription = (changes: Partial<NodeDescription> = {}): NodeDescription => ({
  node_id: 'node_1',
  version: '1.2.3',
  commit: '0123456789ab',
  rooms_hash: 'a1b2c3d4e5f6',
  started_at: '2026-01-01T00:00:00.000Z',
  draining: false,
  cordoned: false,
  listed_types: ['duel'],
  load: { event_loop_utilisation: 0, event_loop_delay_ms: 1, rss_bytes: 1000 },
  ...changes,
})

/** The admin side of a node without rooms, sessions and notices. Every change succeeds. */
export const adminOptions = (): AdminOptions => ({
  ownerlessRooms: async () => ({ rooms: [], next: undefined }),
  notices: {
    describe: async () => ({ pending: { rooms: 0, notices: 0 }, dead_letters: [], next_cursor: null }),
    resend: async () => ({ delivered: 0 }),
    removeAll: async () => undefined,
  },
  listedRooms: async () => answerOf([]),
  countedRooms: async () => [],
  endSession: async () => true,
  setCordoned: async () => undefined,
  clock: new FakeClock(),
  describeRoom: async () => ({ reply: { members: [] }, epoch: 1, seq: 1 }),
  requestRoom: async () => ({ reply: { ended: true }, epoch: 1, seq: 1 }),
  internalToken: undefined,
  registry: new Registry(),
  random: new SeededRandom(),
  log: pino({ level: 'silent' }),
  ready: async () => [],
  describeNode: () => nodeDescription(),
  problems: async () => [],
  describeRooms: () => NOTHING,
  describeSessions: () => NOTHING,
  members: () => 0,
  describeCluster: () => [],
  describeQueues: () => [],
  controlUrl: 'http://127.0.0.1:3000',
  findOwner: async () => undefined,
  search: {
    find: async () => ({ rooms: [], sessions: [], found: { rooms: 0, sessions: 0 }, silent: [] }),
    start: async () => undefined,
    stop: async () => undefined,
  },
  drain: () => undefined,
  setLogLevel: () => undefined,
})
