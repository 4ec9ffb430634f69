import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { type Durability, defineRoom } from './definition.ts'

/** Sells tickets, each with a number of its own. */
const office = (durability: Durability = 'journal') =>
  defineRoom({
    type: 'office',
    durability,
    sync: { rate: 0 },
    create: () => ({ sold: 0, notes: [] as string[] }),
    messages: {
      buy: {
        data: v.object({ bytes: v.optional(v.number(), 0) }),
        reply: v.object({ ticket: v.number(), text: v.optional(v.string(), '') }),
        handle(state, { data }, ctx) {
          state.sold++
          ctx.emit('sold', state.sold)
          ctx.reply({ ticket: state.sold, text: 'x'.repeat(data.bytes) })
        },
      },
      wrong: {
        data: v.null(),
        reply: v.number(),
        handle(state, _input, ctx) {
          state.sold = 1000
          ctx.reply('many' as never)
        },
      },
      twice: {
        data: v.null(),
        reply: v.number(),
        handle(state, _input, ctx) {
          state.sold = 1000
          ctx.reply(1)
          ctx.reply(2)
        },
      },
      silent: {
        data: v.null(),
        reply: v.number(),
        handle(state) {
          state.sold = 1000
        },
      },
      undeclared: {
        data: v.null(),
        handle(state, _input, ctx) {
          state.sold = 1000
          ctx.reply(1 as never)
        },
      },
      leave: {
        data: v.null(),
        reply: v.string(),
        handle(_state, { member }, ctx) {
          ctx.reply('bye')
          ctx.kick(member)
        },
      },
      ask: { data: v.string(), reply: v.string() },
      note: {
        data: v.string(),
        handle: (state, { data, member }) => {
          state.notes.push(`${member.id} ${data}`)
        },
      },
    },
    onMessage(_state, input, ctx) {
      ctx.reply(`${input.data}?`)
    },
  })

/** A message of `ann`, as its edge sends it. */
const say = (
  bench: RoomBench,
  type: string,
  data: never | object | string | null,
  ref?: number,
  settled = 0,
) => bench.send('office', 'ann', { kind: 'message', type, data: data as never, settled, ...(ref && { ref }) })

const ticket = (ref: number, number = ref, text = '') => ({ ref, reply: { ticket: number, text } })
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)

describe('a message type with a handler of its own', () => {
  it('is handled there, and the others by onMessage', async () => {
    const { bench, ann } = await roomWith(office(), ['ann'])
    say(bench, 'note', 'hi', 1)
    say(bench, 'ask', 'who', 2)
    await bench.settle()
    expect(ann.state).toEqual({ sold: 0, notes: ['ann hi'] })
    expect(ann.replies).toEqual([{ ref: 2, reply: 'who?' }])
  })
})

describe('a reply', () => {
  it('waits for the commit of a journal, also when others ask meanwhile', async () => {
    const { bench, ann } = await roomWith(office(), ['ann'])
    bench.store.mood = 'slow'
    say(bench, 'buy', {}, 1)
    await bench.settle()
    say(bench, 'buy', {}, 1)
    const attached = await bench.resume('office', ann)
    expect([ann.replies, attached.outcomes]).toEqual([[], undefined])
    bench.store.let()
    await bench.settle()
    expect(ann.replies).toEqual([ticket(1)])
  })

  it('is kept until its client has said that it knows it', async () => {
    const { bench, ann } = await roomWith(office(), ['ann'])
    for (const ref of [1, 2]) say(bench, 'buy', {}, ref)
    await bench.settle()
    expect((await bench.resume('office', ann, 0, 'node_a', 1)).outcomes).toEqual([ticket(2)])
    expect((await bench.resume('office', ann, 0, 'node_a', 2)).outcomes).toBeUndefined()
  })

  it('comes to a member whom its own message removes', async () => {
    const { bench, ann } = await roomWith(office(), ['ann'])
    say(bench, 'leave', null, 1)
    await bench.settle()
    expect([ann.replies, ann.heard.at(-1)]).toEqual([[{ ref: 1, reply: 'bye' }], '-ann kicked'])
  })

  it.each([
    ['wrong', 'the reply has the wrong shape'],
    ['twice', 'ctx.reply was called twice'],
    ['silent', 'its handler gave none'],
    ['undeclared', 'declares no reply'],
  ])('%s: the turn has not taken place, and the error says why', async (type, text) => {
    const bench = new RoomBench([office()], { revealFailures: true })
    const ann = await bench.join('office', 'ann')
    say(bench, type, null, 1)
    await bench.settle()
    expect(ann.state).toMatchObject({ sold: 0 })
    expect(ann.errors).toEqual([
      { code: 'room_logic_failed', message: expect.stringContaining(text), ref: 1 },
    ])
  })

  it('has at most 4 KiB', async () => {
    const { bench, ann } = await roomWith(office(), ['ann'])
    say(bench, 'buy', { bytes: 4096 - '{"ticket":1,"text":""}'.length }, 1)
    say(bench, 'buy', { bytes: 4097 - '{"ticket":2,"text":""}'.length }, 2)
    await bench.settle()
    expect([ann.replies.length, ann.errors.map(({ code }) => code)]).toEqual([1, ['room_logic_failed']])
  })
})

describe('of replies that a client may not know', () => {
  it('there are 32 at most that are not committed, whatever it says', async () => {
    const { bench, ann } = await roomWith(office(), ['ann'])
    for (const ref of range(1, 33)) say(bench, 'buy', {}, ref)
    await bench.settle()
    expect(ann.replies.map(({ ref }) => ref)).toEqual(range(1, 32))
    expect(ann.errors).toEqual([expect.objectContaining({ ref: 33, code: 'too_many_requests' })])
  })

  it('the oldest are forgotten, where it never does, and never taken for applied without one', async () => {
    const { bench, ann } = await roomWith(office(), ['ann'])
    for (const ref of range(1, 40)) {
      say(bench, 'buy', {}, ref)
      await bench.settle()
    }
    expect([ann.replies.length, ann.acked]).toEqual([40, 40])
    const answer = await bench.resume('office', ann)
    expect(answer).toMatchObject({ ack: 40, forgotten: 8 })
    expect(answer.outcomes?.map(({ ref }) => ref)).toEqual(range(9, 40))
  })
})
