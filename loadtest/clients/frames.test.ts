import { describe, expect, it } from 'vitest'
import { MsgpackClientCodec, StreamContext } from '../../shared/protocol/msgpack-client-codec.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import { peekClientFrame, peekServerFrame } from './client.ts'

const server = new MsgpackCodec()
const client = new MsgpackClientCodec()
/** What is known behind the frame that says which room the next are about. */
function inRoom(): StreamContext {
  const context = new StreamContext()
  expect(peekServerFrame(server.address(at.room_id), context)).toEqual({ kind: 'other' })
  return context
}

const at = { room_id: 'load:load-3', epoch: 1_795_181_400_000, seq: 70_000 }

describe('a peek into a frame of the server', () => {
  const room = server.roomEncoder()

  it.each([
    ['patch', room.patch({ ...at, checksum: 7 }, undefined)],
    ['whole', room.snapshot({ ...at, checksum: 7, state: { a: [1, 2] } })],
    ['whole', room.resync({ ...at, checksum: 7, state: null }, [])],
    ['event', server.encode({ t: 'event', ...at, name: 'milestone', data: { count: 10 } })],
    ['presence', server.encode({ t: 'room.joined', ...at, member_id: 'mem_1', sub: null })],
    ['presence', server.encode({ t: 'room.left', ...at, member_id: 'mem_1', sub: null, reason: 'left' })],
  ])('finds where a %s stands', (kind, frame) => {
    expect(peekServerFrame(frame, inRoom())).toEqual({ kind, ...at })
  })

  it('knows an epoch that is written short from the frame before', () => {
    const context = inRoom()
    const room = server.roomEncoder()
    for (const seq of [70_001, 70_002])
      expect(peekServerFrame(room.patch({ ...at, seq, checksum: 7 }, undefined), context)).toEqual({
        kind: 'patch',
        ...at,
        seq,
      })
  })

  it('finds what an ack acks, and when a client should go', () => {
    expect(peekServerFrame(server.encode({ t: 'ack', room_id: at.room_id, ref: 513 }), inRoom())).toEqual({
      kind: 'ack',
      room_id: at.room_id,
      ref: 513,
    })
    expect(peekServerFrame(server.encode({ t: 'draining', reconnect_in_ms: 1500 }), inRoom())).toEqual({
      kind: 'draining',
      reconnect_in_ms: 1500,
    })
  })

  it('leaves everything else alone', () => {
    const pong = server.encode({ t: 'pong', at: 1, server_time: '2026-01-01T00:00:00.000Z' })
    expect(peekServerFrame(pong, inRoom())).toEqual({ kind: 'other' })
  })
})

describe('a peek into a frame of a client', () => {
  const message = { t: 'message', room_id: at.room_id, type: 'op' } as const

  it('finds the ref and the number of a reliable message', () => {
    const frame = client.encode({ ...message, data: { n: 300, text: 'load' }, ref: 301 })
    expect(peekClientFrame(frame)).toEqual({ kind: 'message', ref: 301, n: 300 })
    const later = client.encode({ ...message, data: { n: 301 }, ref: 302, settled: 300 })
    expect(peekClientFrame(later)).toEqual({ kind: 'message', ref: 302, n: 301 })
  })

  it('finds no number in the message of another room type, and no ref where there is none', () => {
    expect(peekClientFrame(client.encode({ ...message, data: 'hi', ref: 2 }))).toEqual({
      kind: 'message',
      ref: 2,
      n: undefined,
    })
    expect(peekClientFrame(client.encode({ ...message, data: { n: 1 } }))).toEqual({ kind: 'other' })
  })

  it('finds that a client asks for the whole state', () => {
    const wish = client.encode({ t: 'state.resync', room_id: at.room_id, have_seq: 4, reason: 'sequence' })
    expect(peekClientFrame(wish)).toEqual({ kind: 'resync' })
  })

  it('tells a hello for a new session from one that resumes', () => {
    const hello = { t: 'hello', project_id: 'prj_1' } as const
    const resume = { session_id: 'ses_1', resume_token: 'secret', rooms: [] }
    expect(peekClientFrame(client.encode({ ...hello, token: 'v4.public.abc' }))).toEqual({
      kind: 'new session',
    })
    expect(peekClientFrame(client.encode({ ...hello, resume }))).toEqual({ kind: 'other' })
  })
})
