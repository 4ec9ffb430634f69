import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { type RequestAnswer, type RoomRequest, roomAddress, type ToOwner } from '../traffic.ts'
import { RoomRequests } from './requests.ts'

const ROOM = roomAddress('prj_test', 'arena', 'a')
const REQUEST: RoomRequest = { id: 'key_1/a', hash: 'h', do: { op: 'kick', sub: 'ada' } }
const KICKED = { reply: { kicked: 1 }, epoch: 7, seq: 3 }

/** Requests of a node, and the messages that it sent to owners. */
function setup() {
  const clock = new FakeClock()
  const sent: ToOwner[] = []
  const requests = new RoomRequests(
    { clock, random: new SeededRandom(), endedAnswer: async () => ended.answer },
    { send: (message) => sent.push(message) },
  )
  const ended: { answer?: RequestAnswer } = {}
  const answers: unknown[] = []
  requests.send(ROOM, REQUEST).then((answer) => answers.push(answer))
  const { member_id: id } = sent[0]!
  const hear = async (answer: RequestAnswer) => {
    requests.answered(id, answer)
    await Promise.resolve()
  }
  return { clock, sent, answers, ended, id, requests, hear }
}

describe('RoomRequests', () => {
  it('resolves with the first answer of the owner', async () => {
    const { sent, answers, id, hear } = setup()
    expect(sent).toEqual([{ kind: 'request', room: ROOM, member_id: id, request: REQUEST }])
    await hear(KICKED)
    await hear({ code: 'conflict', message: '' })
    expect(answers).toEqual([KICKED])
  })

  it('sends a request again when its room moves, and every 3 s without an answer', async () => {
    const { clock, sent, requests, id } = setup()
    requests.moved(ROOM)
    await clock.advance(99)
    expect(sent).toHaveLength(1)
    await clock.advance(1)
    expect(sent).toHaveLength(2)
    await clock.advance(2999)
    expect(sent).toHaveLength(2)
    await clock.advance(1)
    expect(sent.map(({ member_id: each }) => each)).toEqual([id, id, id])
  })

  it.each(['room_not_found', 'rate_limited', 'project_full', 'too_many_rooms'])(
    'asks the store about a room that does not exist (%s), because it may have ended after the request',
    async (code) => {
      const notFound = { code, message: 'no' } as RequestAnswer
      const unknown = setup()
      await unknown.hear(notFound)
      await Promise.resolve()
      await Promise.resolve()
      expect(unknown.answers).toEqual([notFound])
      const known = setup()
      known.ended.answer = KICKED
      await known.hear(notFound)
      await Promise.resolve()
      await Promise.resolve()
      expect(known.answers).toEqual([KICKED])
    },
  )

  it('resolves with timeout after 10 s, and sends nothing afterwards', async () => {
    const { clock, sent, answers } = setup()
    await clock.advance(10_000)
    expect(answers).toEqual([{ code: 'timeout', message: 'arena:a has not answered within 10 s' }])
    const before = sent.length
    await clock.advance(60_000)
    expect(sent).toHaveLength(before)
  })
})
