import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

const REFUSES = 'no one is there to strike'
const SECRET = 'the boss has 3 hp left'

/** A room that refuses or throws, after it has changed its state and asked for effects. */
const moody = defineRoom({
  type: 'moody',
  messages: {
    refuse: { data: v.string() },
    fail: { data: v.null() },
    check: {
      data: v.custom(() => {
        throw new Error(SECRET)
      }),
    },
  },
  sync: { rate: 0 },
  durability: 'none',
  tick: { rate: 1 },
  create: () => ({ count: 0 }),
  onMessage(state, { type, data }, ctx) {
    state.count++
    ctx.emit('told', null)
    ctx.kick(ctx.members[0]!)
    if (type === 'refuse') return ctx.refuse(data)
    throw new Error(SECRET)
  },
  onTick(state, { refuse }) {
    state.count++
    refuse('not now')
  },
})

async function bench(revealFailures: boolean) {
  const lines: { level: number; err?: { message: string; stack: string } }[] = []
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) })
  const rooms = new RoomBench([moody], { log, revealFailures })
  const ann = await rooms.join('moody', 'ann')
  return { rooms, ann, lines }
}

describe('what room logic refuses', () => {
  it('reaches its sender with the text, leaves the state as it was, and is not logged', async () => {
    const { rooms, ann, lines } = await bench(false)
    const { seq } = ann
    rooms.message('moody', 'ann', 'refuse', REFUSES, 1)
    rooms.message('moody', 'ann', 'refuse', 'x'.repeat(1000), 2)
    await rooms.settle()
    expect(ann.errors).toMatchObject([
      { code: 'room_logic_refused', message: REFUSES, ref: 1 },
      { code: 'room_logic_refused', message: expect.stringMatching(/^x{299}…$/), ref: 2 },
    ])
    await rooms.advance(3000)
    expect([ann.state, ann.seq, ann.heard, lines]).toEqual([{ count: 0 }, seq, [], []])
  })

  it('says why: without a text it is a failure', async () => {
    const { rooms, ann } = await bench(true)
    rooms.message('moody', 'ann', 'refuse', '')
    await rooms.settle()
    expect(ann.errors).toMatchObject([
      { code: 'room_logic_failed', message: 'ctx.refuse got ""; it must be a text for the player' },
    ])
  })
})

describe('what room logic throws', () => {
  it.each([
    [false, "the room's logic failed"],
    [true, SECRET],
  ])('is logged with its stack; with reveal_failures %s the player reads "%s"', async (reveal, message) => {
    const { rooms, ann, lines } = await bench(reveal)
    rooms.message('moody', 'ann', 'fail', null, 1)
    rooms.message('moody', 'ann', 'fail', null, 2)
    rooms.message('moody', 'ann', 'check', null, 3)
    await rooms.settle()
    expect(ann.errors).toMatchObject([1, 2, 3].map((ref) => ({ code: 'room_logic_failed', message, ref })))
    expect(lines).toMatchObject([
      { failed: 'onMessage', err: { message: SECRET, stack: expect.stringContaining('failure-log.test') } },
      { failed: 'the validator of check', err: { message: SECRET } },
    ])
  })
})
