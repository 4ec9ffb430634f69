import { describe, expect, it } from 'vitest'
import { FakeClock } from '../test/support/fake-clock.ts'
import { RecordingTracer } from '../test/support/recording-tracer.ts'
import { DrainTrace } from './drain-trace.ts'

const room = (key: string) => ({ project_id: 'prj_a', room_type: 'arena', key })

describe('the trace of a drain', () => {
  it('has its steps one after the other, and the rooms in theirs', () => {
    const clock = new FakeClock()
    const tracer = new RecordingTracer(clock)
    const trace = new DrainTrace(tracer, clock, { rooms: 1, sessions: 7 })
    clock.advance(10)
    trace.step('drain.rooms')
    clock.advance(20)
    trace.handed(0.015, room('one'), 'node_b')
    trace.step('drain.clients')
    clock.advance(30)
    trace.end('done')
    const [drain, start, rooms, handed, clients] = tracer.spans
    expect(tracer.spans.map(({ name, took }) => [name, took])).toEqual([
      ['drain', 60],
      ['drain.start', 10],
      ['drain.rooms', 20],
      ['room.hand_over', 15],
      ['drain.clients', 30],
    ])
    expect([start, rooms, clients].map((span) => span?.parent)).toEqual(Array(3).fill(drain!.traceparent))
    expect(handed!.parent).toBe(rooms!.traceparent)
    expect(drain!.attributes).toEqual({
      'roomful.rooms': 1,
      'roomful.sessions': 7,
      'roomful.rooms_handed_over': 1,
      'roomful.result': 'done',
    })
  })

  it('names a hundred rooms, and counts them all', () => {
    const clock = new FakeClock()
    const tracer = new RecordingTracer(clock)
    const trace = new DrainTrace(tracer, clock, { rooms: 250, sessions: 0 })
    trace.step('drain.rooms')
    for (let i = 0; i < 250; i++) trace.handed(0.001, room(String(i)), undefined)
    trace.end('done')
    expect(tracer.spans.filter(({ name }) => name === 'room.hand_over')).toHaveLength(100)
    expect(tracer.spans[0]!.attributes['roomful.rooms_handed_over']).toBe(250)
  })

  it('has failed when the node was left behind', () => {
    const clock = new FakeClock()
    const tracer = new RecordingTracer(clock)
    new DrainTrace(tracer, clock, { rooms: 1, sessions: 0 }).end('timeout')
    expect(tracer.spans[0]).toMatchObject({ failed: 'timeout', attributes: { 'roomful.result': 'timeout' } })
    expect(tracer.open).toEqual([])
  })
})
