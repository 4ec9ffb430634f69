import { describe, expect, it, vi } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'
import { LiveState } from './state.ts'

// These tests count calls of methods of JavaScript. Unit tests share their process with nodes, which close these methods.

describe('the first state of a room', () => {
  /** How often `text` is hashed completely during `run`. */
  const hashed = async (text: string, meanwhile: () => Promise<unknown>): Promise<number> => {
    const read = vi.spyOn(String.prototype, 'charCodeAt')
    try {
      await meanwhile()
      const { calls, contexts } = read.mock
      return contexts.filter((context, i) => `${context}` === text && calls[i]![0] === text.length - 1).length
    } finally {
      read.mockRestore()
    }
  }

  // Hashing takes milliseconds per megabyte, during which all other rooms of the node wait.
  it.each([
    ['open', {}],
    ['in a layer', { layers: { text: 'member:ann' } as const }],
  ])(
    'is hashed once by its owner, whether it is new or restored, and once by each member: %s',
    async (_, layers) => {
      const text = 'x'.repeat(1000)
      const novel = defineRoom({
        type: 'novel',
        messages: {},
        create: () => ({ text }),
        onMessage() {},
        ...layers,
      })
      const owner = new RoomBench([novel])
      expect(await hashed(text, () => owner.join('novel', 'ann'))).toBe(1 + 1)
      const away = owner.members.get('ann')!
      owner.detach('novel', away)
      const heir = owner.successor([away])
      expect(await hashed(text, () => heir.resume('novel', away))).toBe(1)
      expect(heir.describe('novel')).toMatchObject({ checksum: away.checksum })
    },
  )
})

describe('a flush', () => {
  const wide = (width: number) => ({
    players: Object.fromEntries(Array.from({ length: width }, (_, i) => [`p${i}`, { x: i, y: i, hp: 100 }])),
    log: Array.from({ length: width }, (_, n) => ({ n })),
  })
  type Wide = ReturnType<typeof wide>

  it.each<[what: string, turn: (state: Wide) => unknown, hashed: number]>([
    ['two fields', ({ players: { p7 } }) => Object.assign(p7!, { x: 0.5, y: 0.5 }), 4],
    ['a field of an element', ({ log }) => Object.assign(log[7]!, { n: 0.5 }), 2],
    ['a push', ({ log }) => log.push({ n: 0.5 }), 1],
    ['a pop', ({ log }) => log.pop(), 0],
    ['a key that goes', ({ players }) => delete players.p7, 0],
    ['a field that came back', ({ players: { p7 } }) => [1, 7].map((x) => Object.assign(p7!, { x })), 0],
  ])('visits only changes and copies nothing, however wide the state is: %s', (what, turn, hashed) => {
    for (const width of [10, 1000]) {
      const live = new LiveState(wide(width), Number.POSITIVE_INFINITY)
      const before = live.base as Wide
      const { players, log } = before
      const [p7, seven] = [players.p7, log[7]]
      // Every number that is visited is hashed, and every container that is walked has its keys listed.
      const numbers = vi.spyOn(DataView.prototype, 'setFloat64')
      const walks = vi.spyOn(Object, 'keys')
      turn(live.begin() as Wide)
      live.commit()
      live.flush()
      const counts = [numbers.mock.calls.length, walks.mock.calls.length]
      vi.restoreAllMocks()
      // Only new values are walked: for the copy, at the end of the turn, for the flushed state, and for the delta.
      expect(counts).toEqual([hashed, what === 'a push' ? 4 : 0])
      const after = live.base as Wide
      expect([
        after === before,
        after.players === players,
        after.log === log,
        after.log[7] === seven,
      ]).toEqual(Array(4).fill(true))
      if (what !== 'a key that goes') expect(after.players.p7).toBe(p7)
    }
  })
})
