import type { JsonObject } from '../../shared/json.ts'
import { ARENA, at, Level, type Script, ScriptRoom } from './script.ts'

/** Level 3 of docs/protocol.md. The start has the layer `mine`. */
const level = new Level(3, 'in_hidden_room')
export const HIDE = level.scenarios

const hands = (of: JsonObject): JsonObject => ({ turn: 1, hands: of })
const MINE = hands({ mem_me: [7, 8] })
const mine = (cards: readonly number[]): JsonObject => ({ hands: { mem_me: cards } })

const asks = (s: Script, reason: string) => s.client({ t: 'state.resync', room_id: ARENA, reason })

level.first('R31', 'each hello has the feature', (s) => {
  s.do('connect')
    .open()
    .client({ t: 'hello', token: 'token-1', features: ['layers'] })
    .welcome()
  s.join(new ScriptRoom())
  s.close(1006)
    .open()
    .client({ t: 'hello', features: ['layers'] })
})

level.add('R32', 'a layer before the snapshot is taken with it', (s) => {
  s.expect({ state: MINE }).client(null)
})

level.add('R32', 'a layer behind its flush is taken immediately', (s, room) => {
  s.server(room.layer('deck', { deck: [1, 2] })).expect({ state: { ...MINE, deck: [1, 2] } })
  s.server(room.patch({ turn: 2, hands: {} }))
    .expect({ state: { ...MINE, turn: 2, deck: [1, 2] } })
    .client(null)
})

level.add('R32', 'layers before a patch are taken with it', (s, room) => {
  s.server(room.layerPatch('mine', mine([7]))).server(room.layer('deck', { deck: [8] }, { ahead: true }))
  s.expect({ state: MINE })
  s.server(room.patch({ turn: 2, hands: {} })).expect({
    state: { turn: 2, hands: { mem_me: [7] }, deck: [8] },
  })
  s.server(room.layerPatch('mine', mine([]))).server(room.patch())
  s.expect({ state: { turn: 2, hands: { mem_me: [] }, deck: [8] } }).client(null)
})

level.add('R32', 'held layers of another flush are dropped', (s, room) => {
  s.server(room.layer('deck', { deck: [8] }, { seq: room.seq + 2 }))
  s.server(room.patch({ turn: 2, hands: {} })).expect({ state: { ...MINE, turn: 2 } })
  s.server(room.patch({ turn: 3, hands: {} }))
    .expect({ state: { ...MINE, turn: 3 } })
    .client(null)
})

level.add('R32', 'held layers are dropped when the connection ends, and arrive again', (s, room) => {
  const position = at(room)
  const layer = room.layerPatch('mine', mine([7]))
  const patch = room.patch({ turn: 2, hands: {} })
  s.server(layer)
    .lose(1006, { rooms: [position] })
    .welcome({ resumed: true })
  s.expect({ state: MINE }).server(layer).server(patch)
  s.expect({ state: { turn: 2, hands: { mem_me: [7] } } }).client(null)
})

level.add('R33', 'a layer without a state is removed', (s, room) => {
  s.server(room.layerGone('mine')).expect({ state: hands({}) })
  s.server(room.layer('mine', mine([1]), { ahead: true })).server(room.patch({ turn: 2, hands: {} }))
  s.server(room.layerGone('mine', { ahead: true })).expect({ state: { turn: 2, hands: { mem_me: [1] } } })
  s.server(room.patch({ turn: 3, hands: {} }))
    .expect({ state: { turn: 3, hands: {} } })
    .client(null)
})

level.add('R33', 'a patch of an unknown layer: nothing of the flush is taken', (s, room) => {
  s.server(room.layerPatch('deck', { deck: [1] })).server(room.patch({ turn: 2, hands: {} }))
  asks(s.expect({ state: MINE }), 'checksum')
  s.server(room.layer('mine', mine([9])))
    .server(room.resync())
    .expect({ state: { turn: 2, hands: { mem_me: [9] } } })
    .client(null)
})

level.add('R33', 'another checksum of a layer: nothing of the flush is taken', (s, room) => {
  s.server(room.layerPatch('mine', mine([7]), { checksum: 1 })).server(room.patch({ turn: 2, hands: {} }))
  asks(s.expect({ state: MINE }), 'checksum')
})

level.add('R33', 'another checksum of the base: nothing of the flush is taken', (s, room) => {
  s.server(room.layerPatch('mine', mine([7]))).server(room.patch({ turn: 2, hands: {} }, { checksum: 1 }))
  asks(s.expect({ state: MINE }), 'checksum')
})

level.add('R34', 'a resync removes layers, except those that came with it', (s, room) => {
  s.server(room.layer('deck', { deck: [1] })).expect({ state: { ...MINE, deck: [1] } })
  room.seq += 20
  s.server(room.layer('deck', { deck: [2] })).expect({ state: { ...MINE, deck: [1] } })
  s.server(room.resync())
    .expect({ state: { ...hands({}), deck: [2] } })
    .client(null)
})

level.add('R34', 'while the client waits for a resync, it drops patches of layers', (s, room) => {
  room.patch({ turn: 2, hands: {} })
  s.server(room.patch({ turn: 3, hands: {} }))
  asks(s, 'sequence')
  s.server(room.layerPatch('mine', mine([7])))
    .server(room.patch({ turn: 4, hands: {} }))
    .expect({ state: MINE })
  s.server(room.layer('mine', mine([7]))).server(room.resync())
  s.expect({ state: { turn: 4, hands: { mem_me: [7] } } })
  s.server(room.layerPatch('mine', mine([6]))).server(room.patch())
  s.expect({ state: { turn: 4, hands: { mem_me: [6] } } }).client(null)
})

level.add(
  'R35',
  'merging: missing keys are added, objects are merged, other values of the base stay',
  (s, room) => {
    const base = { turn: 1, hands: { mem_bob: { count: 2 } }, score: { a: 1 }, list: [1], none: null }
    s.server(room.patch(base))
    s.server(room.layer('mine', { hands: { mem_me: { cards: [7] }, mem_bob: { cards: [5], count: 9 } } }))
    s.server(
      room.layer('deck', { deck: { cards: [1] }, score: { b: 2 }, list: { x: 1 }, none: { x: 1 }, turn: 5 }),
    )
    s.expect({
      state: {
        ...base,
        hands: { mem_me: { cards: [7] }, mem_bob: { cards: [5], count: 2 } },
        score: { a: 1, b: 2 },
        deck: { cards: [1] },
      },
    }).client(null)
  },
)
