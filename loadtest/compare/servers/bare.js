import { createServer } from 'node:http'
import { WebSocketServer } from 'ws'
import { AREA, everyFlush, serve, somewhere } from './served.ts'

/**
 * What nothing on `ws` can go below: compact binary of the players that moved, framed once for each room, and that buffer written to every
 * socket. No sequence, no checksum, no resume, no limits; a slow reader is not noticed.
 *
 * The path names the room (`/r3`). An input is two float32, or MessagePack where inputs change nothing (`/r3?msgpack`). An update is a list of 10 bytes each: number
 * (uint16, little endian), x and y (float32).
 */

const ENTRY = 10

class Room {
  sockets = new Map()
  /** Where each player and entity stands, by number: entities come first. */
  places = []
  changed = new Set()
  #settings
  #served

  constructor(settings, served) {
    this.#settings = settings
    this.#served = served
    for (let i = 0; i < settings.entities; i++) this.places.push([somewhere(), somewhere()])
    everyFlush(() => this.#flush())
  }

  join(socket) {
    const number = this.places.length
    this.move(number, AREA / 2, AREA / 2)
    this.sockets.set(number, socket)
    socket.write(frame(this.places, this.places.keys()))
    return number
  }

  move(number, x, y) {
    this.places[number] = [x, y]
    this.changed.add(number)
  }

  #flush() {
    if (!this.#served.frozen) this.#tick(this.#settings)
    if (this.changed.size === 0) return
    const update = frame(this.places, this.changed)
    this.changed.clear()
    for (const socket of this.sockets.values()) socket.write(update)
  }

  #tick({ tick, entities }) {
    if (tick === 'players')
      for (const number of this.sockets.keys()) this.move(number, somewhere(), somewhere())
    if (tick === 'entities') for (let i = 0; i < entities; i++) this.move(i, somewhere(), this.places[i][1])
    if (tick === 'entity') {
      const number = Math.floor(Math.random() * entities)
      this.move(number, somewhere(), this.places[number][1])
    }
  }
}

/** A websocket frame with the places of these numbers, ready to be written. */
function frame(places, numbers) {
  const all = [...numbers]
  const length = all.length * ENTRY
  const head = length < 126 ? 2 : length < 65_536 ? 4 : 10
  const bytes = Buffer.allocUnsafe(head + length)
  bytes[0] = 0x82
  if (head === 2) bytes[1] = length
  else if (head === 4) bytes.writeUInt16BE(length, 2)
  else bytes.writeBigUInt64BE(BigInt(length), 2)
  if (head > 2) bytes[1] = head === 4 ? 126 : 127
  let at = head
  for (const number of all) {
    const [x, y] = places[number]
    at = bytes.writeUInt16LE(number, at)
    at = bytes.writeFloatLE(x, at)
    at = bytes.writeFloatLE(y, at)
  }
  return bytes
}

await serve(async (settings, served) => {
  const rooms = new Map()
  // Installed by the command only, and needed by one scenario.
  const unpack = settings.nudges && (await import('msgpackr')).unpack
  const http = createServer()
  const server = new WebSocketServer({ server: http, perMessageDeflate: false })
  server.on('connection', (socket, request) => {
    if (!rooms.has(request.url)) rooms.set(request.url, new Room(settings, served))
    const room = rooms.get(request.url)
    const number = room.join(request.socket)
    socket.on('message', (data) => {
      served.inputs++
      if (unpack) socket.last = unpack(data)
      else room.move(number, data.readFloatLE(0), data.readFloatLE(4))
    })
    socket.on('close', () => room.sockets.delete(number))
  })
  await new Promise((resolve) => http.listen(0, '127.0.0.1', resolve))
  return { port: http.address().port }
})
