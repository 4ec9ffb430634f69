import type { Json } from '../../shared/json.ts'
import { ROOM_OPCODE, SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { ARENA, checksumOf, EPOCH, Level, pack, type Script, ScriptRoom, STATE } from './script.ts'

/** Level 4 of docs/protocol.md: frames that only MessagePack has. */
const level = new Level(4)
export const SMALL = level.scenarios

const FIRST_SEQ = 10
type Part = Parameters<typeof pack>[0]

/** The key table of the snapshot of `rawRoom`: n is 0, players 1, x 2, "5" 3. */
const KEYS = ['n', 'players', 'x', '5']
const BEFORE = { n: 1, players: { a: { x: 1 }, b: { x: 2 } }, '5': [1, 2, 3, 4] }

const patch = (seq: number, state: Json, keys: Part, ...change: Part[]) =>
  pack([SERVER_OPCODES['state.patch'], null, seq, checksumOf(state), keys, ...change])

/** A resync with the state `BEFORE` and the table `KEYS`, written by hand. */
function rawRoom(s: Script): Script {
  const players = new Map<Part, Part>([
    ['a', new Map([[2, 1]])],
    ['b', new Map([[2, 2]])],
  ])
  const state = new Map<Part, Part>([
    [0, 1],
    [1, players],
    [3, [1, 2, 3, 4]],
  ])
  const members = [['mem_me', 'alice', true]]
  const checksum = checksumOf(BEFORE)
  s.raw(pack([SERVER_OPCODES['state.resync'], EPOCH, FIRST_SEQ, checksum, [0, ...KEYS], state, members]))
  return s.expect({ state: BEFORE })
}

const asks = (s: Script) => s.client({ t: 'state.resync', room_id: ARENA, reason: 'checksum' })

level.add('R28', 'unknown opcodes and further elements are ignored', (s) => {
  rawRoom(s).raw(pack([99, 'later']), pack([127]))
  const next = { ...BEFORE, n: 2 }
  s.raw(patch(11, next, null, new Map([[0, 2]]), null, 'more', 7))
    .expect({ state: next })
    .client(null)
})

level.add('R29', 'frames belong to the room of the last room frame', (s, room) => {
  const other = new ScriptRoom('arena:other', { n: 1 })
  s.join(other, 2)
  s.server(room.patch({ ...STATE, n: 5 }))
    .server(other.patch({ n: 6 }))
    .server(other.patch({ n: 7 }))
  s.server(room.event('here', null)).expect({ state: { ...STATE, n: 5 }, events: [['here', null]] })
  s.expect({ room_id: other.id, state: { n: 7 }, events: [] }).client(null)
})

level.add('R30', 'decimals, float32, float64 and integers', (s) => {
  rawRoom(s)
  const d = (...bytes: number[]) => Uint8Array.from(bytes)
  const numbers: Part[] = [
    d(0xd4, 0x00, 0x19),
    d(0xd4, 0x1f, 0x83),
    d(0xd5, 0x11, 0x86, 0x9f),
    d(0xca, 0x3f, 0x00, 0x00, 0x00),
    d(0xcb, 0x3f, 0xb9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a),
    d(0xca, 0x40, 0x00, 0x00, 0x00),
    d(0xd4, 0x00, 0x0a),
    d(0xd2, 0xff, 0xff, 0xff, 0xff),
    d(0xcf, 0, 0, 0, 0, 0, 0, 0, 7),
    -32,
  ]
  const next = { ...BEFORE, n: [2.5, -1.25, 999.99, 0.5, 0.1, 2, 1, -1, 7, -32] }
  s.raw(patch(11, next, null, new Map([[0, [numbers]]]))).expect({ state: next })
  const single = { ...next, n: 0.5 }
  s.raw(patch(12, single, null, new Map([[0, d(0xca, 0x3f, 0x00, 0x00, 0x00)]])))
    .expect({ state: single })
    .client(null)
})

level.add('R31', 'an integer key is an index, a string key is a key', (s) => {
  rawRoom(s)
  const next = { ...BEFORE, '5': 'five', '3': 'three', '0': 'zero' }
  const change = new Map<Part, Part>([
    [3, 'five'],
    ['3', 'three'],
    ['0', 'zero'],
  ])
  s.raw(patch(11, next, null, change))
    .expect({ state: next })
    .client(null)
})

level.add('R31', 'a table grows, is cut, and restarts', (s) => {
  rawRoom(s)
  const one = { ...BEFORE, y: 1 }
  s.raw(patch(11, one, [4, 'y'], new Map([[4, 1]]))).expect({ state: one })
  const two = { ...one, n: 2, z: 3 }
  s.raw(
    patch(
      12,
      two,
      [2, 'z'],
      new Map([
        [0, 2],
        [2, 3],
      ]),
    ),
  ).expect({ state: two })
  const three = { ...two, z: 4, w: 5 }
  s.raw(
    patch(
      13,
      three,
      [3, 'w'],
      new Map([
        [2, 4],
        [3, 5],
      ]),
    ),
  ).expect({ state: three })
  const four = { ...three, n: 9 }
  s.raw(patch(14, four, [0, 'n'], new Map([[0, 9]]))).expect({ state: four })
  const five = { ...four, w: 1 }
  s.raw(patch(15, five, null, new Map([['w', 1]])))
    .expect({ state: five })
    .client(null)
})

level.add('R31', 'the keys of a patch that is dropped do not count', (s) => {
  rawRoom(s)
  const one = { ...BEFORE, y: 1 }
  s.raw(patch(11, one, [4, 'y'], new Map([[4, 1]])))
  const two = { ...one, n: 2, y: 3 }
  s.raw(
    patch(
      12,
      two,
      null,
      new Map([
        [0, 2],
        [4, 3],
      ]),
    ),
  ).expect({ state: two })
  s.raw(patch(14, two, [9, 'gap'], new Map([[9, 1]]))).client({ t: 'state.resync', reason: 'sequence' })
  s.raw(patch(15, two, [0], new Map([[77, 1]]))).client(null)
  rawRoom(s)
  const three = { ...BEFORE, n: 3 }
  s.raw(patch(11, three, null, new Map([[0, 3]])))
    .expect({ state: three })
    .client(null)
})

level.add('R31', 'after an index in a whole state that is not in its table, the client asks', (s, room) => {
  rawRoom(s)
  const unreadable = new Map<Part, Part>([[KEYS.length, 1]])
  const head = [SERVER_OPCODES['state.resync'], EPOCH, FIRST_SEQ + 1, 1]
  s.raw(pack([...head, [0, ...KEYS], unreadable, []]))
  asks(s)
  s.server(room.resync()).server(room.patch({ ...STATE, n: 2 }))
  s.expect({ state: { ...STATE, n: 2 } }).client(null)
})

level.add('R31', 'tables outlive a connection', (s, room) => {
  const more = room.patch({ ...STATE, first: 1, second: { third: 2 } })
  const missed = room.patch({ ...STATE, first: 2, second: { third: 3, fourth: 4 } })
  s.server(more).lose(1006).welcome({ resumed: true }).server(missed)
  s.server(room.patch({ ...STATE, first: 3, second: { third: 4, fourth: 5 } }))
  s.expect({ state: { ...STATE, first: 3, second: { third: 4, fourth: 5 } } }).client(null)
})

level.add('R32', 'each kind of change', (s) => {
  rawRoom(s)
  const one = { n: null, players: { b: { x: 3, y: {} } }, list: [[]], text: 'x', yes: true }
  const players = new Map<Part, Part>([
    ['a', null],
    [
      'b',
      new Map<Part, Part>([
        [2, 3],
        ['y', [new Map()]],
      ]),
    ],
  ])
  const change = new Map<Part, Part>([
    [0, [null]],
    [1, players],
    [3, null],
    ['list', [[[]]]],
    ['text', 'x'],
    ['yes', true],
  ])
  s.raw(patch(11, one, null, change)).expect({ state: one })
  s.raw(patch(12, one, null)).expect({ state: one })
  s.raw(patch(13, [1], null, [[1]])).expect({ state: [1] })
  s.raw(patch(14, 'all', null, 'all'))
    .expect({ state: 'all' })
    .client(null)
})

level.add('R32', 'changes of arrays', (s) => {
  rawRoom(s)
  const change = (array: readonly Json[], ...parts: Part[]) => {
    const next = { ...BEFORE, '5': array }
    return [next, new Map<Part, Part>([[3, parts]])] as const
  }
  const [one, first] = change(['one', 2, 'four', 'five'], new Map([[0, 'one']]), [2, 2, ['four', 'five']])
  s.raw(patch(11, one, null, first)).expect({ state: one })
  const [two, second] = change([2, 'four', 'five', 'e'], new Map(), [4, 0, ['e'], 0, 1, []])
  s.raw(patch(12, two, null, second)).expect({ state: two })
  const [three, third] = change(
    [{ x: 1, n: 0 }, { x: 2, n: 1 }, 'five', 'e'],
    new Map<Part, Part>([
      [
        0,
        [
          new Map([
            [2, 1],
            [0, 0],
          ]),
        ],
      ],
      [
        1,
        [
          new Map([
            [2, 2],
            [0, 1],
          ]),
        ],
      ],
    ]),
    [],
  )
  s.raw(patch(13, three, null, third)).expect({ state: three })
  // A table with rows as elements: a nil removes a key of a row.
  const [four, fourth] = change([{ x: 5 }, { n: 6 }, 'five', 'e'], [[2, 0], 0, 5, null, 1, null, 6], [])
  s.raw(patch(14, four, null, fourth))
    .expect({ state: four })
    .client(null)
})

level.add('R32', 'a table with a nil, and with a map of further changes', (s) => {
  rawRoom(s)
  const next = { ...BEFORE, players: { a: { n: 7 }, b: { x: 9, n: 8 }, c: 1 } }
  const rows: Part[] = [[2, 0], 'a', null, 7, 'b', 9, 8, new Map([['c', 1]])]
  s.raw(patch(11, next, null, new Map<Part, Part>([[1, rows]])))
    .expect({ state: next })
    .client(null)
})

const cannotBeApplied: readonly (readonly [string, Part, Part])[] = [
  ['a table that starts beyond the known one', [5, 'gap'], new Map([[0, 2]])],
  ['an index that is not in the table', null, new Map([[4, 2]])],
  ['a map for a number', null, new Map<Part, Part>([[0, new Map([[2, 1]])]])],
  ['a map for a key that is absent', null, new Map<Part, Part>([['absent', new Map([[2, 1]])]])],
  ['a nil for a key that is absent', null, new Map<Part, Part>([['absent', null]])],
  ['a change of an array for an object', null, new Map<Part, Part>([[1, [new Map(), [0, 0, [1]]]]])],
  ['an element that is not there', null, new Map<Part, Part>([[3, [new Map([[4, 1]]), []]]])],
  ['a splice beyond the end', null, new Map<Part, Part>([[3, [new Map(), [3, 2, []]]]])],
]
for (const [name, keys, change] of cannotBeApplied)
  level.add('R32', `after ${name}, the client asks`, (s) => {
    asks(rawRoom(s).raw(patch(11, BEFORE, keys, change)))
    rawRoom(s)
    const next = { ...BEFORE, n: 2 }
    s.raw(patch(11, next, null, new Map([[0, 2]])))
      .expect({ state: next })
      .client(null)
  })

/** A patch that changes only layers. */
const layersPatch = (seq: number, ...layers: Part[]) =>
  pack([SERVER_OPCODES['state.patch'], null, seq, checksumOf(BEFORE), null, null, layers])

level.add('R31', 'a number stands for the layer that was named with it last', (s) => {
  rawRoom(s)
  const deck = (cards: readonly number[]) => ({ deck: cards })
  const whole: Part[] = [[0, 'deck'], [new Map([[0, [1]]])]]
  s.raw(layersPatch(11, [0, 'deck', checksumOf(deck([1])), ...whole])).expect({
    state: { ...BEFORE, deck: [1] },
  })
  const grows = new Map<Part, Part>([[0, [new Map(), [1, 0, [2]]]]])
  s.raw(layersPatch(12, [0, checksumOf(deck([1, 2])), null, grows]))
    .expect({ state: { ...BEFORE, deck: [1, 2] } })
    .raw(layersPatch(13, [0]))
    .expect({ state: BEFORE })
  s.raw(layersPatch(14, [0, 'hand', checksumOf({ hand: 5 }), [0, 'hand'], [new Map([[0, 5]])]]))
  s.raw(
    layersPatch(
      15,
      [1, 'deck', checksumOf(deck([1])), ...whole],
      [0, checksumOf({ hand: 6 }), null, new Map([[0, 6]])],
    ),
  )
  s.expect({ state: { ...BEFORE, deck: [1], hand: 6 } }).raw(layersPatch(16, [2, 'deck'], [0, 'hand']))
  s.expect({ state: BEFORE }).client(null)
})

level.add('R31', 'after a number that is not named, the client asks', (s) => {
  asks(rawRoom(s).raw(layersPatch(11, [3, 1, null, [new Map([['x', 1]])]])))
})

level.add('R32', 'after a layer with an index that is not in its table, the client asks', (s) => {
  asks(rawRoom(s).raw(layersPatch(11, [0, 'deck', checksumOf({ n: 1 }), null, [new Map([[0, 1]])]])))
})

// The start's connection already has the room frame. A new connection has none.
level.add('R29', 'a new connection has no room before its first room frame', (s) => {
  s.lose(1006)
    .welcome({ resumed: true })
    .raw(pack([ROOM_OPCODE, ARENA]))
  s.raw(pack([SERVER_OPCODES.event, 'here', 1]))
    .expect({ events: [['here', 1]] })
    .client(null)
})
