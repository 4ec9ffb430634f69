import { expect, it } from 'vitest'
import { parseDataplaneConfig } from '../../shared/config.ts'
import { type Reliable, Unacked } from './unacked.ts'

const message = (ref: number): Reliable => ({
  kind: 'message',
  room: { project_id: 'prj_1', room_type: 'arena', key: 'a' },
  member_id: 'mem_1',
  type: 'move',
  data: null,
  ref,
})

/**
 * An owner that hangs keeps its connections and its lease: nobody takes its rooms before the lease has run out, has been read by the
 * others (a quarter of a lease later at most), and the room is restored. Members who play on meanwhile are not to be refused anything.
 */
it('has room for all that a client at its rate says while a hanging owner is found out', () => {
  const parsed = parseDataplaneConfig({ REDIS_URL: 'redis://127.0.0.1:6379' })
  if (!parsed.ok) throw new Error('the defaults are not valid')
  const { session_messages_per_second, node_lease_ms } = parsed.config
  const seconds = (1.25 * node_lease_ms) / 1000 + 1
  const unacked = new Unacked()
  for (let ref = 1; ref <= session_messages_per_second * seconds; ref++) {
    expect(unacked.full).toBe(false)
    unacked.add(message(ref))
  }
})

it('says when it is full, and gives again what is not settled, each behind the one before it', () => {
  const unacked = new Unacked()
  let ref = 0
  while (!unacked.full) unacked.add(message(++ref))
  unacked.settle(ref - 2)
  expect(unacked.full).toBe(false)
  expect(unacked.again(ref - 2).map(({ ref, after }) => [ref, after])).toEqual([
    [ref - 1, ref - 2],
    [ref, ref - 1],
  ])
})

it('gives all of it, also to an owner that refuses some while it is being given', () => {
  const unacked = new Unacked()
  for (const ref of [1, 2, 3]) unacked.add(message(ref))
  const given: number[] = []
  for (const { ref } of unacked.again(0)) {
    given.push(ref)
    unacked.refused(ref)
  }
  expect(given).toEqual([1, 2, 3])
})
