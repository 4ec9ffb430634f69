import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { counter } from '../../test/support/rooms/counter-room.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { RecordingTracer } from '../../test/support/tracing.ts'
import { defineRoom } from './definition.ts'

const EDGE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

/** A room whose `admit` waits for the test. */
function guarded() {
  const gates: ((answer: string | undefined) => void)[] = []
  const room = defineRoom({
    type: 'guarded',
    maxMembers: 2,
    create: () => ({}),
    durability: 'journal',
    admit: () => new Promise<string | undefined>((answer) => gates.push(answer)),
  })
  return { room, gates }
}

function traced(rooms: ConstructorParameters<typeof RoomBench>[0]) {
  const clock = new FakeClock()
  const tracer = new RecordingTracer(clock)
  return { tracer, bench: new RoomBench(rooms, { clock, tracer }) }
}

describe('the span of a join at the owner of the room', () => {
  it('lasts from the arrival of the join to the delivery of its flush', async () => {
    const { room, gates } = guarded()
    const { tracer, bench } = traced([room])
    await bench.join('guarded', 'ann', { traceparent: EDGE })
    await bench.advance(200)
    bench.store.mood = 'slow'
    gates.shift()!(undefined)
    await bench.settle()
    await bench.advance(70)
    expect(tracer.open).toEqual(['room.join'])
    bench.store.let()
    await bench.settle()
    expect(tracer.ended).toEqual(['room.join joined'])
    expect(tracer.spans).toMatchObject([
      {
        parent: EDGE,
        took: 270,
        attributes: {
          'roomful.room_id': 'guarded:a',
          'roomful.room_type': 'guarded',
          'roomful.session_id': 'ses_of_ann',
        },
      },
    ])
  })

  it('does not exist if the edge records none, or does not know traces', async () => {
    const { tracer, bench } = traced([counter()])
    await bench.join('counter', 'ann')
    expect(tracer.spans).toEqual([])
  })

  it('starts once, however often the edge sends the join', async () => {
    const { room, gates } = guarded()
    const { tracer, bench } = traced([room])
    for (let i = 0; i < 3; i++) await bench.join('guarded', 'ann', { requestId: 1, traceparent: EDGE })
    gates.shift()!(undefined)
    await bench.advance(200)
    await bench.join('guarded', 'ann', { requestId: 1, traceparent: EDGE })
    expect(tracer.spans).toHaveLength(1)
    expect(tracer.open).toEqual([])
  })

  it('has the reason why there was no membership', async () => {
    const { room, gates } = guarded()
    const { tracer, bench } = traced([room])
    for (const name of ['ann', 'bob', 'eve']) await bench.join('guarded', name, { traceparent: EDGE })
    gates.shift()!('not today')
    bench.send('guarded', 'bob', { kind: 'leave', reason: 'session_ended' })
    await bench.join('guarded', 'late', { traceparent: EDGE })
    await bench.host.close()
    expect(tracer.open).toEqual([])
    expect(tracer.ended).toEqual([
      'room.join join_refused',
      'room.join session_ended',
      'room.join room_full',
      'room.join late',
    ])
  })

  it.each(['left', 'fenced'])('ends if the join fails behind a commit: %s', async (ending) => {
    const { room, gates } = guarded()
    const { tracer, bench } = traced([room])
    await bench.join('guarded', 'bob')
    bench.store.mood = 'slow'
    gates.shift()!(undefined)
    await bench.settle()
    // It waits behind the flush with bob, which is in flight.
    await bench.join('guarded', 'ann', { traceparent: EDGE })
    gates.shift()!(undefined)
    await bench.settle()
    expect(tracer.open).toEqual(['room.join'])
    if (ending === 'left') bench.send('guarded', 'ann', { kind: 'leave', reason: 'left' })
    // Another node owns the room.
    else await bench.claimed('guarded')
    bench.store.mood = 'fine'
    bench.store.let()
    await bench.advance(200)
    expect(tracer.open).toEqual([])
    expect(tracer.ended).toContain(`room.join ${ending}`)
  })
})
