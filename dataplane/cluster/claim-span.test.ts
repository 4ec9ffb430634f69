import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { RecordingTracer } from '../../test/support/recording-tracer.ts'
import { type EndedClaim, traceClaim } from './claim-span.ts'

const JOIN = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
const SESSION = '00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01'

function spansOf(claim: Partial<EndedClaim>) {
  const clock = new FakeClock()
  clock.advance(100)
  const tracer = new RecordingTracer(clock)
  traceClaim(tracer, {
    room: 'prj_a/arena:one:two',
    result: 'claimed',
    epoch: 12,
    from: undefined,
    began_at: 60,
    ...claim,
  })
  return tracer.spans
}

describe('a claim in traces', () => {
  it('is a part of the join that it was made for', () => {
    expect(spansOf({ made_for: { traceparent: JOIN }, asked_by: () => [JOIN] })).toMatchObject([
      {
        name: 'room.claim',
        parent: JOIN,
        took: 40,
        failed: undefined,
        attributes: {
          'roomful.project_id': 'prj_a',
          'roomful.room_type': 'arena',
          'roomful.room_id': 'arena:one:two',
          'roomful.result': 'claimed',
          'roomful.epoch': 12,
        },
      },
    ])
  })

  it('is nothing when nobody who is recorded asked for it', () => {
    expect(spansOf({})).toEqual([])
    expect(spansOf({ asked_by: () => [SESSION] })).toEqual([])
  })

  it('that the store did not answer has failed', () => {
    expect(spansOf({ made_for: { traceparent: JOIN }, result: 'unavailable' })).toMatchObject([
      { failed: 'unavailable' },
    ])
  })

  it('from a dead node is a trace of its own, linked to those who waited, and part of a join that caused it', () => {
    const asked_by = () => [JOIN, SESSION, SESSION]
    const spans = spansOf({ made_for: { traceparent: JOIN }, asked_by, result: 'taken_over', from: 'node_b' })
    expect(spans).toMatchObject([
      { name: 'room.claim', parent: JOIN },
      {
        name: 'room.take_over',
        parent: undefined,
        links: [JOIN, SESSION],
        took: 40,
        attributes: { 'roomful.from_node_id': 'node_b', 'roomful.epoch': 12 },
      },
    ])
  })

  it('names so many of those who waited and no more', () => {
    const many = Array.from({ length: 500 }, (_, i) => SESSION.replace('1af', String(100 + i)))
    const [take_over] = spansOf({ asked_by: () => many, result: 'taken_over', from: 'node_b' })
    expect(take_over!.links).toEqual(many.slice(0, 32))
  })
})
