import { expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { roomAddress } from '../traffic.ts'
import { PlayerBudgets } from './budget.ts'
import { gatewayOptions } from './context.ts'
import { Session } from './session.ts'
import { decodeSession, encodeSession, type SessionRecord } from './session-record.ts'

const record: SessionRecord = {
  session_id: 'ses_one',
  claims: {
    project_id: 'prj_one',
    sub: 'Zoë 🎲',
    issued_at: '2026-01-01T00:00:00.000Z',
    expires_at: '2026-01-01T00:05:00.000Z',
    rooms: ['arena', 'lobby:1'],
  },
  node_id: 'node_a',
  right: { token: 'abc', used: null, turn: 0, confirmed: true },
  seats: [{ room_type: 'arena', key: 'one', member_id: 'mem_one' }],
  ended: [],
  connected_at: 1,
  detached: false,
}

it('a session survives being written down', () => {
  expect(decodeSession(encodeSession(record))).toEqual(record)
  const room = roomAddress('prj_one', 'arena', 'two')
  const farewell = { epoch: 1, seq: 7, reason: 'kicked', message: 'no manners' } as const
  const { message: _, ...silent } = farewell
  const ended = [
    { room, farewell },
    { room: roomAddress('prj_one', 'arena', 'three'), farewell: silent },
  ]
  expect(decodeSession(encodeSession({ ...record, ended }))).toEqual({ ...record, ended })
  const sent = { ...record, rerouting: { at: 5, failures: 1, to: 'node_b' } }
  expect(decodeSession(encodeSession(sent))).toEqual(sent)
})

it('a record of another format is not taken for a session', () => {
  const bytes = encodeSession(record)
  bytes[0] = 1
  expect(decodeSession(bytes)).toBeUndefined()
  expect(decodeSession(new Uint8Array())).toBeUndefined()
})

it('the trace of a token, which only the first handshake goes on with, is not written down', () => {
  const clock = new FakeClock()
  const { session_id: sessionId, claims, right } = record
  const budget = new PlayerBudgets(clock, gatewayOptions()).ofSession(claims, sessionId)
  const trace = { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', tracestate: 'a=b' }
  const session = new Session(clock, {
    sessionId,
    claims: { ...claims, ...trace },
    right,
    budget,
    place: undefined,
  })
  session.trace = trace
  expect(session.record('node_a')).toMatchObject({ claims, trace: trace.traceparent })
  expect(session.record('node_a').claims).toEqual(claims)
})
