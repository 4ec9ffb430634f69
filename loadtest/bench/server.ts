import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { decode } from '@msgpack/msgpack'
import { pino } from 'pino'
import { defineRoom, type Member } from 'roomful'
import * as v from 'valibot'
import { type WebSocket, WebSocketServer } from 'ws'
import type { startNode as StartNode } from '../../dataplane/node.ts'

/**
 * A server under measurement, in a process of its own: `bare`, or `roomful` with BENCH_CONTROL_URL, BENCH_INTERNAL_TOKEN and BENCH_TICK in
 * its environment. Over its parent's IPC channel it says where it listens (`{ready: port}`), answers `{sample: id}` with its CPU time and
 * the inputs it has handled, and obeys `{payload: bytes}`.
 */

/** What a server under measurement answers. */
export interface CpuSample {
  /** CPU time of the whole process since its start, user and system, microseconds. */
  readonly cpuUs: number
  /** Inputs handled since its start. */
  readonly inputs: number
}

/** What the tick needs of its context. */
interface Turn {
  readonly members: readonly Member[]
  random(): number
}

interface Player {
  x: number
  y: number
}

let inputs = 0
let payload: Buffer | undefined

const place = v.object({ x: v.number(), y: v.number() })

/** Every tick moves every player (`updates`), every `move` moves one (`game`), and `nudge` is validated and applied without changing anything (`inputs`). */
const benchRoom = (tick: boolean) =>
  defineRoom({
    type: 'bench',
    maxMembers: 1_000,
    messages: { move: { data: place }, nudge: { data: place } },
    sync: { rate: 20 },
    durability: 'none',
    create: () => ({ players: {} as Record<string, Player> }),
    onJoin(state, member) {
      state.players[member.id] = { x: 500, y: 500 }
    },
    onMessage(state, input) {
      inputs += 1
      if (input.type !== 'move') return
      const player = state.players[input.member.id]
      if (!player) return
      player.x = input.data.x
      player.y = input.data.y
    },
    onLeave(state, member) {
      delete state.players[member.id]
    },
    ...(tick && {
      tick: { rate: 20 },
      onTick: (_state: unknown, ctx: Turn) => ({ state: { players: everywhere(ctx) } }),
    }),
  })

/** Every member at a new place: as little game logic as can change everything. */
function everywhere(ctx: Turn): Record<string, Player> {
  const players: Record<string, Player> = {}
  for (const { id: memberId } of ctx.members)
    players[memberId] = { x: Math.floor(ctx.random() * 1_000), y: Math.floor(ctx.random() * 1_000) }
  return players
}

/** One node as it comes, of the compiled code, since that is what runs in production (`npm run build`). */
async function startRoomful(env: NodeJS.ProcessEnv): Promise<number> {
  const built = new URL('../../dist/dataplane/node.js', import.meta.url).href
  const { startNode }: { startNode: typeof StartNode } = await import(built)
  const node = await startNode({
    rooms: [benchRoom(env.BENCH_TICK === '1')],
    wsPort: 0,
    adminPort: 0,
    controlUrl: env.BENCH_CONTROL_URL!,
    internalToken: env.BENCH_INTERNAL_TOKEN!,
    newRoomsPerMinute: 0,
    maxRoomsPerProject: 0,
    log: pino({ level: 'warn' }),
  })
  return Number(new URL(node.wsUrl).port)
}

/**
 * The baseline: `ws` and nothing else. The path names the room (`/r3`). Inputs are decoded and kept; every 50 ms each room's members get
 * the same ready bytes. What any server on `ws` has to pay, whatever it does besides.
 */
function startBare(): Promise<number> {
  const rooms = new Map<string, Set<WebSocket>>()
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
  return new Promise((resolve) => {
    http.listen(0, '127.0.0.1', () => resolve((http.address() as AddressInfo).port))
  })
}

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

process.on('message', (message: { sample?: number; payload?: number }) => {
  if (message.payload !== undefined)
    payload = message.payload > 0 ? Buffer.alloc(message.payload, 7) : undefined
  if (message.sample === undefined) return
  const { user, system } = process.cpuUsage()
  process.send?.({ sample: message.sample, cpuUs: user + system, inputs } satisfies CpuSample & {
    sample: number
  })
})
process.on('disconnect', () => process.exit(0))
process.send?.({ ready: await (process.argv[2] === 'bare' ? startBare() : startRoomful(process.env)) })
