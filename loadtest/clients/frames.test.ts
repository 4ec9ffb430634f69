import { describe, expect, it } from 'vitest'
import { StreamContext } from '../../shared/protocol/msgpack-client-codec.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import { peek } from './client.ts'

const server = new MsgpackCodec()
const at = { room_id: 'load:load-3', epoch: 1_795_181_400_000, seq: 70_000 }
const { room_id: roomId, epoch, seq: number } = at

function inRoom(): StreamContext {
  const context = new StreamContext()
  expect(peek(server.address(roomId), context)).toBeUndefined()
  return context
}

describe('peek', () => {
  const room = server.roomEncoder()
  it.each([
    ['patch', room.patch({ ...at, checksum: 7 }, undefined)],
    ['full', room.whole('state.snapshot', { ...at, checksum: 7, state: { a: [1, 2] } }, [])],
    ['full', room.whole('state.resync', { ...at, checksum: 7, state: null }, [])],
    ['event', server.encode({ t: 'event', ...at, name: 'milestone', data: { count: 10 } })],
    ['presence', server.encode({ t: 'member', ...at, member_id: 'mem_1', sub: null, status: 'joined' })],
  ])('reads the position of a %s', (kind, frame) => {
    expect(peek(frame, inRoom())).toEqual({ kind, roomId, epoch, number })
  })

  it('takes an epoch that is abbreviated from the frame before', () => {
    const context = inRoom()
    const room = server.roomEncoder()
    for (const seq of [70_001, 70_002])
      expect(peek(room.patch({ ...at, seq, checksum: 7 }, undefined), context)).toEqual({
        kind: 'patch',
        roomId,
        epoch,
        number: seq,
      })
  })

  it('reads the ref of an ack, and that the client is to move', () => {
    const ack = server.encode({ t: 'ack', room_id: roomId, ref: 513 })
    expect(peek(ack, inRoom())).toMatchObject({ kind: 'ack', roomId, number: 513 })
    const move = server.encode({ t: 'move', in_ms: 1500 })
    expect(peek(move, inRoom())).toMatchObject({ kind: 'move' })
  })

  it('ignores other frames', () => {
    const pong = server.encode({ t: 'pong', at: 1, server_time: '2026-01-01T00:00:00.000Z' })
    expect(peek(pong, inRoom())).toBeUndefined()
  })
})
