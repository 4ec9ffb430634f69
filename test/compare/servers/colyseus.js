import { createServer } from 'node:http'
import { LobbyRoom, Room, Server } from '@colyseus/core'
import { Encoder, schema, t } from '@colyseus/schema'
import { WebSocketTransport } from '@colyseus/ws-transport'
import {
  AREA,
  FLUSHES_PER_SECOND,
  LISTED_SEATS,
  mapOf,
  moveTo,
  place,
  serve,
  somewhere,
  tickOnce,
} from './served.ts'

/**
 * Colyseus as its documentation recommends: a state schema with the smallest field types. The room sends its changes at `patchRate`. A join
 * verifies nothing.
 */

// Colyseus recommends this in its error for a state that does not fit.
Encoder.BUFFER_SIZE = 1024 * 1024

const Place = schema({ x: t.float32(), y: t.float32() })
const State = schema({ players: t.map(Place), entities: t.map(Place) })

const arena = (settings, served) =>
  class extends Room {
    patchRate = 1_000 / FLUSHES_PER_SECOND
    state = new State()
    messages = {
      move: (client, to) => {
        served.inputs++
        moveTo(this.state.players.get(client.sessionId), to)
      },
      nudge: () => served.inputs++,
    }

    onCreate() {
      for (let i = 0; i < settings.entities; i++)
        this.state.entities.set(`e${i}`, new Place().assign(place()))
      if (settings.tick !== 'none')
        this.setTimestep(() => tickOnce(settings, served, this), 1_000 / FLUSHES_PER_SECOND)
    }

    onJoin(client) {
      this.state.players.set(client.sessionId, new Place().assign({ x: AREA / 2, y: AREA / 2 }))
    }

    onLeave(client) {
      this.state.players.delete(client.sessionId)
    }

    movePlayers() {
      for (const player of this.state.players.values()) moveTo(player, place())
    }

    moveEntity(index) {
      this.state.entities.get(`e${index}`).x = somewhere()
    }
  }

const Level = schema({ level: t.uint32() })

/** A listed room whose level changes once a second. */
const listed = (served) =>
  class extends Room {
    maxClients = LISTED_SEATS
    patchRate = 1_000 / FLUSHES_PER_SECOND
    state = new Level().assign({ level: 0 })

    onCreate({ key }) {
      const map = mapOf(key)
      this.setMetadata({ key, map, level: 0 })
      this.clock.setInterval(() => {
        if (served.frozen) return
        this.state.level += 1
        this.setMetadata({ key, map, level: this.state.level })
      }, 1_000)
    }
  }

await serve(async (settings, served) => {
  const http = createServer()
  const server = new Server({ transport: new WebSocketTransport({ server: http }), greet: false })
  if (settings.kind === 'lobby') {
    server.define('lobby', LobbyRoom)
    server.define('arena', listed(served)).filterBy(['key', 'map']).enableRealtimeListing()
  } else server.define('arena', arena(settings, served)).filterBy(['key'])
  await server.listen(0, '127.0.0.1')
  return { port: http.address().port }
})
