import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { decode } from '@msgpack/msgpack'
import { type WebSocket, WebSocketServer } from 'ws'
import { reportCpu } from './cpu-report.ts'

/**
 * The baseline: `ws` and nothing else. The path names the room (`/3`). Inputs are decoded and kept; every 50 ms each room's members get
 * the same ready bytes. What any server on `ws` has to pay, whatever it does besides.
 */
const rooms = new Map<string, Set<WebSocket>>()
let payload: Buffer | undefined
let inputs = 0
const last = new Map<WebSocket, unknown>()

const http = createServer()
const server = new WebSocketServer({ server: http, perMessageDeflate: false })
server.on('connection', (socket, request) => {
  const name = request.url ?? '/'
  let members = rooms.get(name)
  if (!members) {
    members = new Set()
    rooms.set(name, members)
    broadcast(members)
  }
  members.add(socket)
  socket.on('message', (data: Buffer) => {
    last.set(socket, decode(data))
    inputs += 1
  })
  socket.on('close', () => members.delete(socket))
})

/** 20 Hz from absolute deadlines, each room in its own phase. */
function broadcast(members: Set<WebSocket>): void {
  let due = performance.now() + Math.random() * 50
  const turn = () => {
    if (payload) for (const socket of members) socket.send(payload)
    due += 50
    setTimeout(turn, Math.max(0, due - performance.now()))
  }
  setTimeout(turn, due - performance.now())
}

reportCpu({
  /** How many bytes each broadcast has; 0: none. */
  payload: (bytes: number) => {
    payload = bytes > 0 ? Buffer.alloc(bytes, 7) : undefined
  },
  inputs: () => inputs,
})
http.listen(0, '127.0.0.1', () => process.send?.({ ready: (http.address() as AddressInfo).port }))
