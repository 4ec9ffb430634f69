import { createServer } from 'node:http'
import { WebSocketServer } from 'ws'
import { Bus } from './bare-bus.js'
import { AREA, everyFlush, serve, somewhere } from './served.ts'

/**
 * What nothing on `ws` can go below: compact binary of the players that moved, framed once for each room, and that buffer written to every
 * socket. No sequence, no checksum, no resume, no limits; a slow reader is not noticed.
 *
 * The path names the room (`/r3`). An input is two float32, or MessagePack where inputs change nothing (`/r3?msgpack`). An update is a list of 10 bytes each: number
 * (uint16, little endian), x and y (float32).
 *
 * Over several nodes, the number of a room says which of them has it. An input for another node is its room and its player (uint16 both), the node that it
 * comes from (a byte), and x and y; an update is its room and the frame, once for each node that has players of it.
 */

const ENTRY = 10

class Room {
  sockets = new Map()
  /** Where each player and entity stands, by number: entities come first. */
  places = []
  changed = new Set()
  /** The other nodes that have players of it. */
  nodes = new Set()
  #settings
  #served
  #forward
  /** The number of the next player at this node. */
  #next

  /** `forward(node, update)` brings an update to another node. */
  constructor(settings, served, forward) {
    this.#settings = settings
    this.#served = served
    this.#forward = forward
    for (let i = 0; i < settings.entities; i++) this.places.push([somewhere(), somewhere()])
    this.#next = settings.entities
    everyFlush(() => this.#flush())
  }

  join(socket) {
    const number = this.#next++
    this.move(number, AREA / 2, AREA / 2)
    this.sockets.set(number, socket)
    socket.write(frame(this.places, Object.keys(this.places)))
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
    for (const node of this.nodes) this.#forward(node, update)
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

const INPUT_BYTES = 13

/** The players at this node of a room that another node has. */
class DistantRoom {
  sockets = new Map()
  #number
  #index
  #toOwner
  #next

  /** `toOwner` brings an input to the room's node. */
  constructor(number, index, toOwner) {
    this.#number = number
    this.#index = index
    this.#toOwner = toOwner
    // Unlike the numbers of players at other nodes.
    this.#next = 256 * (index + 1)
  }

  join(socket) {
    const number = this.#next++
    this.sockets.set(number, socket)
    socket.write(frame({ [number]: [AREA / 2, AREA / 2] }, [number]))
    this.move(number, AREA / 2, AREA / 2)
    return number
  }

  move(number, x, y) {
    const input = Buffer.allocUnsafe(INPUT_BYTES)
    input.writeUInt16LE(this.#number, 0)
    input.writeUInt16LE(number, 2)
    input[4] = this.#index
    input.writeFloatLE(x, 5)
    input.writeFloatLE(y, 9)
    this.#toOwner(input)
  }
}
await serve(async (settings, served) => {
  const { nodes, redisUrl } = settings
  const rooms = new Map()
  const bus = nodes && new Bus(redisUrl, nodes, receive)

  function forward(number, node, update) {
    const message = Buffer.allocUnsafe(2 + update.length)
    message.writeUInt16LE(number, 0)
    update.copy(message, 2)
    bus.send(node, message)
  }

  function makeRoom(number) {
    const { index, count } = nodes ?? { index: 0, count: 1 }
    const owner = number % count
    if (owner !== index) return new DistantRoom(number, index, (input) => bus.send(owner, input))
    served.rooms.add(`arena:r${number}`)
    return new Room(settings, served, (node, update) => forward(number, node, update))
  }

  function roomOf(number) {
    if (!rooms.has(number)) rooms.set(number, makeRoom(number))
    return rooms.get(number)
  }

  function receive(message) {
    const room = roomOf(message.readUInt16LE(0))
    if (room instanceof Room) {
      room.nodes.add(message[4])
      room.move(message.readUInt16LE(2), message.readFloatLE(5), message.readFloatLE(9))
    } else {
      const update = Buffer.from(message.subarray(2))
      for (const socket of room.sockets.values()) socket.write(update)
    }
  }

  // Installed by the command only, and needed by one scenario.
  const unpack = settings.nudges && (await import('msgpackr')).unpack
  const http = createServer()
  const server = new WebSocketServer({ server: http, perMessageDeflate: false })
  server.on('connection', (socket, request) => {
    const room = roomOf(Number.parseInt(request.url.slice(2), 10))
    const number = room.join(request.socket)
    socket.on('message', (data) => {
      served.inputs++
      if (unpack) socket.last = unpack(data)
      else room.move(number, data.readFloatLE(0), data.readFloatLE(4))
    })
    socket.on('close', () => room.sockets.delete(number))
  })
  await new Promise((resolve) => http.listen(settings.port ?? 0, '127.0.0.1', resolve))
  return { port: http.address().port }
})
