import { expect, it } from 'vitest'
import { apply, REMOVE, Replace } from '../../shared/sync/delta.ts'
import { diff } from '../../shared/sync/testing/diff.ts'
import { JournalFormat, type RoomSnapshot, type Update } from './journal.ts'

/** The leaf as deep in arrays as a state may have it. */
function nested(leaf: number): unknown {
  let value: unknown = leaf
  for (let level = 0; level < 63; level++) value = [value]
  return value
}

const before = {
  deep: nested(1),
  list: [1, { a: 2 }, 'three'],
  gone: true,
  players: { anna: { hp: 3 } },
} as never
const after = {
  deep: nested(2),
  list: [{ a: 3 }, 'three', null, -1.5, 1e300],
  players: { anna: { hp: 300 }, 'bért 🎲': { hp: -70000, bag: [1795181400123, 'x'.repeat(40)] } },
  constructor: { toJSON: 1 },
  '': 0.1,
} as never
const refusal = { ref: 9, code: 'room_full', message: 'full' } as const
const reply = { ref: 10, reply: { hp: [1, 'two'] } } as const
const membership = {
  member: { id: 'mem_a', sub: 'anna', connected: false, data: { level: 3 } },
  sessionId: 'ses_1',
  joinRequest: 1,
  edge: 'node-1~f3Kx9a_Q',
  codec: 'roomful.v1.msgpack',
  lastRef: 70_000,
  outcomes: [refusal, reply],
  forgotten: 4,
} as const
const timer = { id: 'turn', due: 1_795_181_420_123, name: 'turnEnds', data: { turn: 3 } } as const
const task = { id: 'tsk_1_2', name: 'question', data: null } as const
const at = { epoch: 1_795_181_400_123, seq: 70_001, checksum: 0xfedcba98 }
const update: Update = {
  ...at,
  visible: true,
  delta: diff(before, after),
  events: [
    { name: 'hit', data: { by: 'mem_a' }, to: undefined },
    { name: 'told', data: null, to: ['mem_a'] },
  ],
  joined: [membership],
  replaced: [{ ...membership, subscriptionId: 'mem_c' }],
  left: [{ member: { id: 'mem_b', sub: null, connected: true, data: null }, reason: 'kicked' }],
  presence: [{ memberId: 'mem_a', connected: false, sub: 'anna' }],
  renewed: [{ memberId: 'mem_a', data: { level: 3 } }],
  acks: [{ memberId: 'mem_a', ref: 70_000, forgotten: 4 }],
  outcomes: [
    { memberId: 'mem_a', ...refusal },
    { memberId: 'mem_a', ...reply },
  ],
  tables: {
    timers: { set: [timer], removed: ['tmr_1'] },
    tasks: { set: [task], removed: ['tsk_1_1'] },
    bans: { set: [{ id: 'mallory' }], removed: ['bo'] },
  },
  layers: {
    checksum: 17,
    sum: 0xf0000001,
    hidden: [
      { layer: 'member:mem_a', path: ['hands', 'mem_a'], change: new Replace([7], true), at: 0 },
      { layer: null, path: ['deck'], change: REMOVE, at: 0 },
    ],
    changed: [{ layer: 'member:mem_a', checksum: 18, created: true }],
    grants: [{ memberId: 'mem_a', layer: 'staff', shown: false }],
  },
}
const layers = { checksum: 19, sum: 20, grants: [{ memberId: 'mem_a', layers: ['team:red'] }] }
const base = { epoch: 1_795_181_400_000, seq: 70_000 }

/** `update` in a snapshot, as version 9 has it in stores since the first release that wrote it. */
const STORED = Buffer.from(
  `CSt0pbUAAAIhm8tCeh+SZQOwAM4AARFxzv7cupiFpGRlZXCRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZ
   GRkZGRkZGRkZGRkZGRkZGRkZGRkZECpGxpc3SVgaFhA6V0aHJlZcDUD/HLfjfkPIgAdZyncGxheWVyc4KkYW5uYYGiaHDNASyqYsOp
   cnQg8J+OsoKiaHDS//7ukKNiYWeSy0J6H5JlA7AA2Sh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4q2Nvbn
   N0cnVjdG9ygaZ0b0pTT04BoNQAAZGcpW1lbV9hpGFubmHCgaVsZXZlbAOlc2VzXzHAAa9ub2RlLTF+ZjNLeDlhX1Gycm9vbWZ1bC52
   MS5tc2dwYWNrzgABEXCSkwmpcm9vbV9mdWxspGZ1bGySCoGiaHCSAaN0d28EkstCeh+SZPwAAM4AARFwkxMUkZKlbWVtX2GRqHRlYW
   06cmVkA5WRlKR0dXJuy0J6H5Jp5bAAqHR1cm5FbmRzgaR0dXJuA5GUp3Rza18xXzKocXVlc3Rpb27AwJKRp21hbGxvcnmRo2V2ZZGS
   o2FkYctCeh+SbE8AAJKUp2tleV8xL2GhaMtCeh+SbsAAAJOBpXRvdGFsBwMJlKdrZXlfMS9ioWnLQnofknExAACSqXJvb21fZnVsbK
   Jub8tCebLc18AAAKZLN1FYMk0AAAQWCWZB5Hify0J6H5JlA7AAzgABEXHDzv7cupidA6RkZWVwkwSSAJMEkgCTBJIAkwSSAJMEkgCT
   BJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkw
   SSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJME
   kgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJ
   IAkgECkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQpGxpc3STBJYA
   kgGBoWEDAZIBpXRocmVlApIBwJMDAJLUD/HLfjfkPIgAdZyncGxheWVyc5UDpGFubmGTA6JocJIBzQEsqmLDqXJ0IPCfjrKSAoKiaH
   DS//7ukKNiYWeSy0J6H5JlA7AA2Sh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4q2NvbnN0cnVjdG9ykgKB
   pnRvSlNPTgGgkgLUAAGkZ29uZQCSk6NoaXSBomJ5pW1lbV9hwJOkdG9sZMCRpW1lbV9hkZylbWVtX2GkYW5uYcKBpWxldmVsA6VzZX
   NfMcABr25vZGUtMX5mM0t4OWFfUbJyb29tZnVsLnYxLm1zZ3BhY2vOAAERcJKTCalyb29tX2Z1bGykZnVsbJIKgaJocJIBo3R3bwSR
   nKVtZW1fYaRhbm5hwoGlbGV2ZWwDpXNlc18xpW1lbV9jAa9ub2RlLTF+ZjNLeDlhX1Gycm9vbWZ1bC52MS5tc2dwYWNrzgABEXCSkw
   mpcm9vbV9mdWxspGZ1bGySCoGiaHCSAaN0d28EkZWlbWVtX2LAw8Cma2lja2VkkZOlbWVtX2HCpGFubmGRkqVtZW1fYYGlbGV2ZWwD
   kZOlbWVtX2HOAAERcASSlKVtZW1fYQmpcm9vbV9mdWxspGZ1bGyTpW1lbV9hCoGiaHCSAaN0d2+VEc7wAAABkpSsbWVtYmVyOm1lbV
   9hkqVoYW5kc6VtZW1fYZICkQcAlMCRpGRlY2sAAJGTrG1lbWJlcjptZW1fYRLDkZOlbWVtX2Glc3RhZmbClZKRlKR0dXJuy0J6H5Jp
   5bAAqHR1cm5FbmRzgaR0dXJuA5GldG1yXzGSkZSndHNrXzFfMqhxdWVzdGlvbsDAkad0c2tfMV8xkpGRp21hbGxvcnmRomJvwMA=`,
  'base64',
)

// A release reads the records of the release before. While both share a cluster, the older release also reads
// those of the newer one.
it('reads and writes version 9 of the record to the byte', () => {
  const format = new JournalFormat()
  const { updates, ...snapshot } = format.readSnapshot(STORED)
  expect(snapshot).toEqual({
    ...at,
    state: after,
    memberships: [membership],
    base,
    tables: {
      timers: [timer],
      tasks: [task],
      bans: [{ id: 'mallory' }, { id: 'eve' }],
      reservations: [{ id: 'ada', due: 1_795_181_430_000 }],
      outcomes: [
        {
          id: 'key_1/a',
          hash: 'h',
          due: 1_795_181_440_000,
          answer: { reply: { total: 7 }, epoch: 3, seq: 9 },
        },
        { id: 'key_1/b', hash: 'i', due: 1_795_181_450_000, answer: { code: 'room_full', message: 'no' } },
      ],
    },
    layers,
    stateVersion: 3,
    createdAt: 1_766_000_000_000,
    code: 'K7QX2M',
  } satisfies Omit<RoomSnapshot, 'updates'>)
  const { delta, ...rest } = format.readEntry(updates[0]!)
  expect({ ...rest, delta: update.delta }).toEqual(update)
  expect(apply(before, delta!)).toEqual(after)
  const written = format.snapshot({ ...snapshot, updates: [format.entry(update)] })
  expect(Buffer.from(written).equals(STORED)).toBe(true)
})
