import { createServer } from 'node:http'
import { Server } from 'socket.io'
import { AREA, everyFlush, place, serve, somewhere, tickOnce } from './served.ts'

/**
 * Socket.IO as its documentation recommends: rooms, and `io.to(room).emit`, which encodes once for all members. Not `volatile`, because
 * these updates are differences, and a lost one would leave a wrong state.
 */

class Room {
  players = {}
  entities = {}
  #changed = { players: {}, entities: {} }

  constructor(io, name, settings, served) {
    for (let i = 0; i < settings.entities; i++) this.entities[`e${i}`] = place()
    everyFlush(() => {
      tickOnce(settings, served, this)
      const changed = this.#changed
      if (Object.keys(changed.players).length + Object.keys(changed.entities).length === 0) return
      this.#changed = { players: {}, entities: {} }
      io.to(name).emit('update', changed)
    })
  }

  move(id, place) {
    this.players[id] = place
    this.#changed.players[id] = place
  }

  leave(id) {
    delete this.players[id]
    this.#changed.players[id] = null
  }

  movePlayers() {
    for (const id in this.players) this.move(id, place())
  }

  moveEntity(index) {
    const id = `e${index}`
    this.entities[id].x = somewhere()
    this.#changed.entities[id] = { x: this.entities[id].x }
  }
}

await serve(async (settings, served) => {
  const http = createServer()
  const io = new Server(http, { transports: ['websocket'], serveClient: false })
  const rooms = new Map()
  io.on('connection', (socket) => {
    const { room: name } = socket.handshake.auth
    if (!rooms.has(name)) rooms.set(name, new Room(io, name, settings, served))
    const room = rooms.get(name)
    room.move(socket.id, { x: AREA / 2, y: AREA / 2 })
    socket.emit('state', { players: room.players, entities: room.entities })
    socket.join(name)
    socket.on('move', ({ x, y }) => {
      served.inputs++
      room.move(socket.id, { x, y })
    })
    socket.on('nudge', () => served.inputs++)
    socket.on('disconnect', () => room.leave(socket.id))
  })
  await new Promise((resolve) => http.listen(0, '127.0.0.1', resolve))
  return { port: http.address().port }
})
