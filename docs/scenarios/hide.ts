import type { JsonObject } from '../../shared/json.ts'
import { ARENA, at, Level, type Script, ScriptRoom } from './script.ts'

/** Level 3 of docs/protocol.md. The start has the layer `mine`. */
const level = new Level(3, 'in_hidden_room')
export const HIDE = level.scenarios

const hands = (of: JsonObject): JsonObject => ({ turn: 1, hands: of })
const MINE = hands({ mem_me: [7, 8] })
const mine = (cards: readonly number[]): JsonObject => ({ hands: { mem_me: cards } })

const asks = (s: Script, reason: string) => s.client({ t: 'state.resync', room_id: ARENA, reason })

level.first('R25', 'each hello has the feature', (s) => {
  s.do('connect')
    .open()
    .client({ t: 'hello', token: 'token-1', features: ['layers'] })
    .welcome()
  s.join(new ScriptRoom())
  s.close(1006)
    .open()
    .client({ t: 'hello', features: ['layers'] })
})

level.add('R26', 'a whole state has the layers of this client', (s, room) => {
  s.expect({ state: MINE })
  room.patch({ turn: 5, hands: {} }, { layers: { mine: mine([1]), deck: { deck: [2] } } })
  room.seq += 20
  s.server(room.resync())
    .expect({ state: { turn: 5, hands: { mem_me: [1] }, deck: [2] } })
    .client(null)
})

level.add('R26', 'a whole state removes all other layers', (s, room) => {
  s.server(room.patch(undefined, { layers: { deck: { deck: [1] } } }))
  s.expect({ state: { ...MINE, deck: [1] } })
  room.patch(undefined, { layers: { mine: null } })
  s.server(room.resync()).expect({ state: { ...hands({}), deck: [1] } })
  room.patch(undefined, { layers: { deck: null } })
  s.server(room.resync())
    .expect({ state: hands({}) })
    .client(null)
})

level.add('R26', 'a patch changes the base, layers, both or nothing', (s, room) => {
  s.server(room.patch(undefined, { layers: { mine: mine([7]) } })).expect({ state: hands({ mem_me: [7] }) })
  s.server(room.patch({ turn: 2, hands: {} })).expect({ state: { turn: 2, hands: { mem_me: [7] } } })
  s.server(room.patch({ turn: 3, hands: {} }, { layers: { mine: mine([7, 9]), deck: { deck: [8] } } }))
  s.expect({ state: { turn: 3, hands: { mem_me: [7, 9] }, deck: [8] } })
  s.server(room.patch()).server(room.patch(undefined, { layers: { deck: { deck: [] }, mine: mine([]) } }))
  s.expect({ state: { turn: 3, hands: { mem_me: [] }, deck: [] } }).client(null)
})

level.add('R26', 'null removes a layer, also one that this client does not have', (s, room) => {
  s.server(room.patch({ turn: 2, hands: {} }, { layers: { mine: null } }))
  s.expect({ state: { turn: 2, hands: {} } })
  s.server(room.patch(undefined, { layers: { other: null, mine: mine([1]) } }))
  s.expect({ state: { turn: 2, hands: { mem_me: [1] } } }).client(null)
})

level.add('R26', 'a layer of which a whole state comes again is replaced', (s, room) => {
  s.server(room.patch(undefined, { layers: { deck: { deck: [1], more: 2 } } }))
  room.patch(undefined, { layers: { deck: null } })
  room.seq -= 1
  s.server(room.patch(undefined, { layers: { deck: { deck: [3] } } }))
    .expect({ state: { ...MINE, deck: [3] } })
    .client(null)
})

level.add('R26', 'after a change of a layer that this client does not have, the client asks', (s, room) => {
  room.patch(undefined, { layers: { deck: { deck: [1] } } })
  room.seq -= 1
  s.server(room.patch({ turn: 2, hands: {} }, { layers: { mine: mine([7]), deck: { deck: [2] } } }))
  asks(s, 'checksum')
  s.server(room.resync())
    .expect({ state: { turn: 2, hands: { mem_me: [7] }, deck: [2] } })
    .client(null)
})

level.add('R26', 'after another checksum of a layer, the client asks', (s, room) => {
  s.server(room.patch({ turn: 2, hands: {} }, { layers: { mine: mine([7]) }, wrong: 'mine' }))
  asks(s, 'checksum')
  s.server(room.resync())
    .expect({ state: { turn: 2, hands: { mem_me: [7] } } })
    .client(null)
})

level.add('R26', 'after another checksum of the base, the client asks', (s, room) => {
  s.server(room.patch({ turn: 2, hands: {} }, { layers: { mine: mine([7]) }, checksum: 1 }))
  asks(s, 'checksum')
})

level.add(
  'R26',
  'a flush with layers that is lost: the client asks once, and goes on after the answer',
  (s, room) => {
    room.patch({ turn: 2, hands: {} }, { layers: { mine: mine([7]) } })
    s.server(room.patch({ turn: 3, hands: {} }, { layers: { mine: mine([6]) } }))
    asks(s, 'sequence')
    s.server(room.patch({ turn: 4, hands: {} }, { layers: { deck: { deck: [1] } } }))
    s.server(room.resync()).expect({ state: { turn: 4, hands: { mem_me: [6] }, deck: [1] } })
    s.server(room.patch(undefined, { layers: { mine: mine([5]), deck: { deck: [] } } }))
    s.expect({ state: { turn: 4, hands: { mem_me: [5] }, deck: [] } })
      .wait(5000)
      .client(null)
  },
)

level.add('R26', 'layers outlive a connection', (s, room) => {
  s.lose(1006, { rooms: [at(room)] }).welcome({ resumed: true })
  room.reconnect()
  s.server(room.patch({ turn: 2, hands: {} }, { layers: { mine: mine([7]) } }))
  s.expect({ state: { turn: 2, hands: { mem_me: [7] } } })
  s.server(room.patch(undefined, { layers: { mine: null } }))
    .expect({ state: { turn: 2, hands: {} } })
    .client(null)
})

level.add(
  'R27',
  'merging: missing keys are added, objects are merged, other values of the base stay',
  (s, room) => {
    const base = { turn: 1, hands: { mem_bob: { count: 2 } }, score: { a: 1 }, list: [1], none: null }
    const mine = { hands: { mem_me: { cards: [7] }, mem_bob: { cards: [5], count: 9 } } }
    const deck = { deck: { cards: [1] }, score: { b: 2 }, list: { x: 1 }, none: { x: 1 }, turn: 5 }
    s.server(room.patch(base, { layers: { mine, deck } }))
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
