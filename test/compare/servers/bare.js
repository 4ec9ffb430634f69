import { connect } from 'node:net'
import { Sender, WebSocketServer } from 'ws'
import { AREA, everyFlush, serve, somewhere, tickOnce } from './served.ts'

/**
 * The lower limit of a server with `ws`. An update is a compact binary list of the moved players. It is framed once for each room and
 * written to all sockets. There are no sequence numbers, checksums, resumes, limits or checks for slow readers.
 *
 * The path is the room (`/r3`). An input is two float32, or MessagePack if inputs change nothing. An update has 10 bytes for each player:
 * number (uint16, little endian), x and y (float32).
 *
 * With several nodes, the number of a room decides its node. An input for another node is the room and the player (uint16 each), the
 * sender's node (one byte), x and y. An update to another node is the room and the frame, once for each node with players of the room.
 */

const ENTRY_BYTES = 10
const INPUT_BYTES = 13

class Room {
  sockets = new Map()
  /** Positions of the entities, followed by those of the players. */
  places = []
  changed = new Set()
  /** Other nodes with players of the room. */
  nodes = new Set()
  #next

  /** `forward(node, update)` sends an update to another node. */
  constructor(settings, served, forward) {
    for (let i = 0; i < settings.entities; i++) this.places.push([somewhere(), somewhere()])
    this.#next = settings.entities
    everyFlush(() => {
      tickOnce(settings, served, this)
      if (this.changed.size === 0) return
      const update = frame(this.places, this.changed)
      this.changed.clear()
      for (const socket of this.sockets.values()) socket.write(update)
      for (const node of this.nodes) forward(node, update)
    })
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

  movePlayers() {
    for (const number of this.sockets.keys()) this.move(number, somewhere(), somewhere())
  }

  moveEntity(number) {
    this.move(number, somewhere(), this.places[number][1])
  }
}

/** Returns a websocket frame with the positions of some numbers. */
function frame(places, numbers) {
  const all = [...numbers]
  const bytes = Buffer.allocUnsafe(all.length * ENTRY_BYTES)
  let at = 0
  for (const number of all) {
    const [x, y] = places[number]
    at = bytes.writeUInt16LE(number, at)
    at = bytes.writeFloatLE(x, at)
    at = bytes.writeFloatLE(y, at)
  }
  return Buffer.concat(
    Sender.frame(bytes, { fin: true, rsv1: false, opcode: 2, mask: false, readOnly: true }),
  )
}

/** Players at node `index` in a room of another node. `toOwner` sends an input to that node. */
function distantRoom(room, index, toOwner) {
  const sockets = new Map()
  // The numbers differ from those of players at other nodes.
  let next = 256 * (index + 1)
  const move = (number, x, y) => {
    const input = Buffer.allocUnsafe(INPUT_BYTES)
    input.writeUInt16LE(room, 0)
    input.writeUInt16LE(number, 2)
    input[4] = index
    input.writeFloatLE(x, 5)
    input.writeFloatLE(y, 9)
    toOwner(input)
  }
  const join = (socket) => {
    const number = next++
    sockets.set(number, socket)
    socket.write(frame({ [number]: [AREA / 2, AREA / 2] }, [number]))
    move(number, AREA / 2, AREA / 2)
    return number
  }
  return { sockets, move, join }
}

/**
 * The lower limit of a bus over Redis. Messages are collected until the next flush slot, as in roomful, published without replies and read
 * without a library. There are no resends and no reconnects.
 */

const GATHER_MS = 1000 / 120
const CRLF = Buffer.from('\r\n')

class Bus {
  #publisher
  /** Queued messages for each node, and the timer that sends them. */
  #waiting
  #timer

  /** Calls `onMessage` with each message for node `index` of `count`. */
  constructor(url, index, count, onMessage) {
    const { hostname: host, port } = new URL(url)
    this.#waiting = Array.from({ length: count }, () => [])
    this.#publisher = connect({ host, port, noDelay: true })
    this.#publisher.write('CLIENT REPLY OFF\r\n')
    const subscriber = connect({ host, port, noDelay: true })
    subscriber.write(`SUBSCRIBE node${index}\r\n`)
    let bytes = Buffer.alloc(0)
    subscriber.once('data', () =>
      subscriber.on('data', (chunk) => {
        bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk])
        bytes = bytes.subarray(eachPublished(bytes, onMessage))
      }),
    )
  }

  send(to, message) {
    const length = Buffer.allocUnsafe(2)
    length.writeUInt16LE(message.length)
    this.#waiting[to].push(length, message)
    this.#timer ??= setTimeout(() => this.#sendAll(), GATHER_MS - (Date.now() % GATHER_MS))
  }

  #sendAll() {
    this.#timer = undefined
    const commands = this.#waiting.flatMap((messages, to) => {
      if (messages.length === 0) return []
      const body = Buffer.concat(messages.splice(0))
      return [Buffer.from(`*3\r\n$7\r\nPUBLISH\r\n$5\r\nnode${to}\r\n$${body.length}\r\n`), body, CRLF]
    })
    this.#publisher.write(Buffer.concat(commands))
  }
}

/** Length of the bytes before the length of a body: three bulk strings, of which the first two are `message` and the channel. */
const HEAD = '*3\r\n$7\r\nmessage\r\n$5\r\nnode0\r\n$'.length

/** Calls `onMessage` with the messages of all complete bodies. Returns the start of the remainder. */
function eachPublished(bytes, onMessage) {
  let at = 0
  while (at + HEAD < bytes.length) {
    const from = bytes.indexOf('\r\n', at + HEAD) + 2
    const end = from + Number(bytes.latin1Slice(at + HEAD, from - 2))
    if (from < 2 || end + 2 > bytes.length) break
    for (let next = from; next < end; ) {
      const start = next + 2
      next = start + bytes.readUInt16LE(next)
      onMessage(bytes.subarray(start, next))
    }
    at = end + 2
  }
  return at
}

await serve(async (settings, served) => {
  const { nodes = 1, index, redisUrl } = settings
  const rooms = new Map()
  const bus = nodes > 1 && new Bus(redisUrl, index, nodes, receive)

  function makeRoom(number) {
    const owner = number % nodes
    if (owner !== index) return distantRoom(number, index, (input) => bus.send(owner, input))
    served.rooms.add(`arena:r${number}`)
    const id = Buffer.alloc(2)
    id.writeUInt16LE(number, 0)
    return new Room(settings, served, (node, update) => bus.send(node, Buffer.concat([id, update])))
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

  // Imported for the one scenario that needs it, because only `npm run compare` installs it.
  const unpack = settings.nudges && (await import('msgpackr')).unpack
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate: false })
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
  await new Promise((resolve) => server.on('listening', resolve))
  return { port: server.address().port }
})
