import { createServer } from 'node:http'
import { Room, Server } from '@colyseus/core'
import { Encoder, schema, t } from '@colyseus/schema'
import { WebSocketTransport } from '@colyseus/ws-transport'
import { AREA, FLUSHES_PER_SECOND, serve, somewhere } from './served.ts'

/**
 * Colyseus as its documentation has it: state as a schema whose changes the room sends at `patchRate`, the types of its fields as narrow as they
 * may be. Nothing is verified at a join.
 */

// As it says itself where a state does not fit.
Encoder.BUFFER_SIZE = 1024 * 1024

const Place = schema({ x: t.float32(), y: t.float32() })
const State = schema({ players: t.map(Place), entities: t.map(Place) })

const at = (x, y) => {
  const place = new Place()
  place.x = x
  place.y = y
  return place
}

const arena = ({ tick, entities }, served) =>
  class extends Room {
    patchRate = 1_000 / FLUSHES_PER_SECOND
    state = new State()
    messages = {
      move: (client, { x, y }) => {
        served.inputs++
        const player = this.state.players.get(client.sessionId)
        player.x = x
        player.y = y
      },
      nudge: () => served.inputs++,
    }

    onCreate() {
      for (let i = 0; i < entities; i++) this.state.entities.set(`e${i}`, at(somewhere(), somewhere()))
      if (tick !== 'none') this.setTimestep(() => this.#tick(), 1_000 / FLUSHES_PER_SECOND)
    }

    onJoin(client) {
      this.state.players.set(client.sessionId, at(AREA / 2, AREA / 2))
    }

    onLeave(client) {
      this.state.players.delete(client.sessionId)
    }

    #tick() {
      if (served.frozen) return
      const { players, entities: all } = this.state
      if (tick === 'players')
        for (const player of players.values()) {
          player.x = somewhere()
          player.y = somewhere()
        }
      if (tick === 'entities') for (const entity of all.values()) entity.x = somewhere()
      if (tick === 'entity') all.get(`e${Math.floor(Math.random() * entities)}`).x = somewhere()
    }
  }

await serve(async (settings, served) => {
  const http = createServer()
  const server = new Server({ transport: new WebSocketTransport({ server: http }), greet: false })
  server.define('arena', arena(settings, served)).filterBy(['key'])
  await server.listen(0, '127.0.0.1')
  return { port: http.address().port }
})
