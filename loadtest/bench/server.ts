import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { decode } from '@msgpack/msgpack'
import { pino } from 'pino'
import { defineRoom } from 'roomful'
import * as v from 'valibot'
import { type WebSocket, WebSocketServer } from 'ws'
import type { startNode as StartNode } from '../../dataplane/node.ts'

/**
 * A server under measurement, in a process of its own: `bare`, or `roomful` with BENCH_CONTROL_URL, BENCH_INTERNAL_TOKEN and BENCH_TICK in
 * its environment. Over its parent's IPC channel it says where it listens (`{port}`), and answers each number of bytes, from then on those
 * of a broadcast of the bare server (0: none), with a `Sample`.
 */

/** What a server has used and done since its start. */
export interface Sample {
  /** CPU time of the whole process, user and system, microseconds. */
  readonly cpuUs: number
  /** Inputs handled. */
  readonly inputs: number
}

/** What the parent's messages and the handling of inputs share. */
interface Served {
  inputs: number
  /** What the bare server broadcasts. */
  payload: Buffer | undefined
}

const place = v.object({ x: v.number(), y: v.number() })
type Players = Record<string, { x: number; y: number }>

/** Every tick moves every player (`updates`), every `move` moves one (`game`), and `nudge` is validated and applied without changing anything (`inputs`). */
const benchRoom = (tick: boolean, served: Served) =>
  defineRoom({
    type: 'bench',
    maxMembers: 1_000,
    messages: { move: { data: place }, nudge: { data: place } },
    sync: { rate: 20 },
    durability: 'none',
    create: (): { players: Players } => ({ players: {} }),
    onJoin(state, member) {
      state.players[member.id] = { x: 500, y: 500 }
    },
    onMessage(state, input) {
      served.inputs += 1
      if (input.type === 'move') Object.assign(state.players[input.member.id] ?? {}, input.data)
    },
    onLeave(state, member) {
      delete state.players[member.id]
    },
    ...(tick && {
      tick: { rate: 20 },
      onTick: (_: unknown, ctx: { members: readonly { id: string }[]; random(): number }) => {
        const somewhere = (): number => Math.floor(ctx.random() * 1_000)
        const moved = ctx.members.map(({ id }) => [id, { x: somewhere(), y: somewhere() }])
        return { state: { players: Object.fromEntries(moved) as Players } }
      },
    }),
  })

/** One node as it comes, of the compiled code, since that is what runs in production (`npm run build`). */
async function startRoomful(env: NodeJS.ProcessEnv, served: Served): Promise<number> {
  const built = new URL('../../dist/dataplane/node.js', import.meta.url).href
  const { startNode }: { startNode: typeof StartNode } = await import(built)
  const node = await startNode({
    rooms: [benchRoom(env.BENCH_TICK === '1', served)],
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
function startBare(served: Served): Promise<number> {
  const rooms = new Map<string, Set<WebSocket>>()
  const last = new Map<WebSocket, unknown>()
  const http = createServer()
  const server = new WebSocketServer({ server: http, perMessageDeflate: false })
  server.on('connection', (socket, request) => {
    const name = request.url ?? '/'
    const members = rooms.get(name) ?? broadcasting(served)
    rooms.set(name, members.add(socket))
    socket.on('message', (data: Buffer) => {
      last.set(socket, decode(data))
      served.inputs += 1
    })
    socket.on('close', () => members.delete(socket))
  })
  return new Promise((resolve) => {
    http.listen(0, '127.0.0.1', () => resolve((http.address() as AddressInfo).port))
  })
}

/** Members who get a broadcast at 20 Hz from absolute deadlines, each room in its own phase. */
function broadcasting(served: Served): Set<WebSocket> {
  const members = new Set<WebSocket>()
  let due = performance.now() + Math.random() * 50
  const turn = () => {
    if (served.payload) for (const socket of members) socket.send(served.payload)
    due += 50
    setTimeout(turn, Math.max(0, due - performance.now()))
  }
  setTimeout(turn, due - performance.now())
  return members
}

async function serve(kind: string | undefined, env: NodeJS.ProcessEnv): Promise<void> {
  const served: Served = { inputs: 0, payload: undefined }
  process.on('message', (bytes: number) => {
    served.payload = bytes > 0 ? Buffer.alloc(bytes, 7) : undefined
    const { user, system } = process.cpuUsage()
    process.send?.({ cpuUs: user + system, inputs: served.inputs } satisfies Sample)
  })
  process.on('disconnect', () => process.exit(0))
  process.send?.({ port: await (kind === 'bare' ? startBare(served) : startRoomful(env, served)) })
}

await serve(process.argv[2], process.env)
