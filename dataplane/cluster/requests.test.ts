import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { roomAddress, type ToEdge, type ToOwner } from '../traffic.ts'
import { RoomRequests } from './requests.ts'

const ROOM = roomAddress('prj_test', 'arena', 'a')

/** Requests of a node, and what was sent to owners. */
function setup() {
  const clock = new FakeClock()
  const sent: ToOwner[] = []
  const requests = new RoomRequests({
    clock,
    random: new SeededRandom(),
    send: (message) => sent.push(message),
  })
  const outcomes: unknown[] = []
  requests.end(ROOM).then((outcome) => outcomes.push(outcome))
  const { member_id: id } = sent[0]!
  const hear = async (message: Record<string, unknown>) => {
    const taken = requests.receive({ room: ROOM, epoch: 7, ...message } as unknown as ToEdge)
    await Promise.resolve()
    return taken
  }
  return { clock, sent, requests, outcomes, id, hear }
}

describe('RoomRequests', () => {
  it('resolves with the answer of the owner, which no one else gets', async () => {
    const { sent, outcomes, id, hear } = setup()
    expect(sent).toEqual([{ kind: 'end', room: ROOM, member_id: id }])
    expect(await hear({ kind: 'done', member_id: 'a member' })).toBe(false)
    expect(await hear({ kind: 'done', member_id: id })).toBe(true)
    expect(outcomes).toEqual(['done'])
    expect(await hear({ kind: 'done', member_id: id })).toBe(false)
  })

  it('tells a room that does not exist from one whose end was not heard', async () => {
    const unknown = setup()
    await unknown.hear({ kind: 'no_seat', member_id: unknown.id })
    expect(unknown.outcomes).toEqual(['not_found'])
    const lost = setup()
    await lost.clock.advance(3000)
    expect(lost.sent).toHaveLength(2)
    await lost.hear({ kind: 'no_seat', member_id: lost.id })
    expect(lost.outcomes).toEqual(['done'])
  })

  it('sends a request again when its room moves, and every 3 s without an answer', async () => {
    const { clock, sent, hear, id } = setup()
    expect(await hear({ kind: 'redirect', owner: null })).toBe(false)
    await clock.advance(99)
    expect(sent).toHaveLength(1)
    await clock.advance(1)
    expect(sent).toHaveLength(2)
    await clock.advance(2999)
    expect(sent).toHaveLength(2)
    await clock.advance(1)
    expect(sent.map(({ member_id: each }) => each)).toEqual([id, id, id])
  })

  it('resolves with a refusal', async () => {
    const { outcomes, id, hear } = setup()
    await hear({ kind: 'error', member_id: id, code: 'room_unavailable', message: 'the store is away' })
    expect(outcomes).toEqual([{ code: 'room_unavailable', message: 'the store is away' }])
  })

  it('times out after 10 s, and sends nothing afterwards', async () => {
    const { clock, sent, outcomes } = setup()
    await clock.advance(10_000)
    expect(outcomes).toEqual(['timed_out'])
    const before = sent.length
    await clock.advance(60_000)
    expect(sent).toHaveLength(before)
  })
})
