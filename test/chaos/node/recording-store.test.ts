import { expect, it } from 'vitest'
import { newSessionId, quotaSets, SessionStore } from '../../../dataplane/gateway/session-store.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import { FakeClock } from '../../kit/fake-clock.ts'
import { SeededRandom } from '../../kit/seeded-random.ts'
import { check } from '../checker/check.ts'
import { Scenario } from '../checker/scenario.ts'
import { machineNow } from './clocks.ts'
import { readStoreLines, type StoreLine, StoreRecorder, storeLinesIn, unfenced } from './recording-store.ts'

/** A recorder of `node`, and a function that reads its lines. */
function recording(node: string) {
  const lines: StoreLine[] = []
  return {
    recorder: new StoreRecorder(node, machineNow, (line) => lines.push(line)),
    read: () => readStoreLines(storeLinesIn(lines.map((line) => `${JSON.stringify(line)}\n`).join('')), 0),
  }
}

it.each([
  {
    result: 'a store without fence accepts a write of an earlier owner, and the checker reports it',
    fences: false,
  },
  { result: 'a store with fence rejects a write of an earlier owner', fences: true },
])('$result', async ({ fences }) => {
  const scenario = new Scenario('none')
  const { room } = scenario
  const { rooms } = memoryStore({ clock: new FakeClock() })
  const [a, b] = [recording('node_a'), recording('node_b')]
  const [old, next] = [a, b].map(({ recorder }) => recorder.rooms(fences ? rooms : unfenced(rooms)))
  const content = new Uint8Array()
  const { fence } = (await old!.claim(room, 'node_a', 0, 1000))!
  expect(await old!.snapshot(room, fence, content, 1000)).toBe(true)
  const later = (await next!.claim(room, 'node_b', fence.epoch, 1000))!
  expect(await next!.snapshot(room, later.fence, content, 1000)).toBe(true)
  const late = { ...fence, version: fence.version + 1 }
  expect(await old!.snapshot(room, late, content, 1000)).toBe(!fences)
  const calls = [...a.read().calls, ...b.read().calls]
  const names = check({ ...scenario.end(), store: calls }).violations.map(({ name }) => name)
  expect(names.includes('stale_commit')).toBe(!fences)
})

it.each([
  [
    'records no late call if the node was suspended after it had checked its lease',
    { checkedAt: 900, late: 0 },
  ],
  ['records a late call if the node read its clock after the end of its lease', { checkedAt: 1100, late: 1 }],
])('StoreRecorder %s', async (_, { checkedAt, late }) => {
  let now = 0
  let readAt = 0
  const lines: StoreLine[] = []
  const recorder = new StoreRecorder(
    'node_a',
    () => now,
    (line) => lines.push(line),
    () => readAt,
  )
  const { records } = memoryStore({ clock: new FakeClock() })
  const renewal = {
    key: '{nodes}:node_a',
    holder: 'node_a',
    value: new Uint8Array(),
    ttlMs: 1000,
    listed: { index: '{nodes}', member: 'node_a' },
  }
  await recorder.records(records).renewLease(renewal)
  readAt = checkedAt
  now = 3000
  const room = { name: 'prj/chaos-none:r0', epoch: 1 }
  recorder.calls.begin({ room, hook: 'onMessage', subject: '', ref: 0, type: '', principal: '' }, false)
  expect(lines.filter((line) => 'late' in line)).toHaveLength(late)
})

// The checker finds sessions by the ids that clients record. Under another id, each session that is lost with the store's data would count as
// a violation.
it('StoreRecorder records a session under the id that its client has', async () => {
  const { recorder, read } = recording('node_a')
  const { records } = memoryStore({ clock: new FakeClock() })
  const store = new SessionStore(recorder.records(records))
  const [first] = quotaSets('prj_a/token:b', 10)
  const sessionId = newSessionId(new SeededRandom(1), first!.set)
  const record = {
    session_id: sessionId,
    claims: { project_id: 'prj_a', issued_at: '', expires_at: '' },
    node_id: 'node_a',
    right: { token: 'abc', used: null, turn: 0, confirmed: true },
    seats: [],
    ended: [],
    connected_at: 1,
    detached: false,
    place: { set: first!.set, came_at: 1 },
  }
  await store.create(record, 10, 1000)
  await store.save({ ...record, right: { ...record.right, turn: 3 } }, 1, 1000)
  expect(read().sessions).toMatchObject([
    { session: sessionId, turn: 0 },
    { session: sessionId, turn: 3 },
  ])
})
