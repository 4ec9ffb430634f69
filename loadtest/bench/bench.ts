import { type ChildProcess, fork, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { pino } from 'pino'
import { WebSocket } from 'ws'
import { startControl } from '../../control/main.ts'
import { systemClock } from '../../shared/clock.ts'
import type { ClientMessage } from '../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import { systemRandom } from '../../shared/random.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type { Credentials } from '../clients/client.ts'
import { ControlIssuer } from '../issuer.ts'
import type { Sample } from './server.ts'

const SERVER = fileURLToPath(new URL('./server.ts', import.meta.url))
const INTERNAL_TOKEN = 'bench-internal-token'
const WARM_SECONDS = 0.5
/** Ready inputs, sent in turn, so that encoding them costs the generator nothing. */
const VARIANTS = 64

export interface BenchOptions {
  readonly rooms: number
  /** Clients in each room. */
  readonly members: number
  /** Whether every player moves each tick. */
  readonly ticks: boolean
  /** What clients send: nothing, moves that change the state, or nudges that change nothing. */
  readonly input: 'move' | 'nudge' | undefined
  /** Inputs per second and client. */
  readonly rate: number
}

/** What a server did in a window of time. */
export interface Window extends Sample {
  /** Updates that its clients received. */
  readonly updates: number
  readonly bytesPerUpdate: number
}

/** A node and the bare server beside it, each with the same clients; both are measured in turn, so that a machine that slows down does so for both. */
export interface Bench {
  /** One window of each. The bare server broadcasts as many bytes as roomful just did. */
  measure(seconds: number): Promise<{ roomful: Window; bare: Window }>
  close(): Promise<void>
}

/** Resolves when both servers have their clients. */
export async function startBench({ rooms, members, ticks, input, rate }: BenchOptions): Promise<Bench> {
  const control = await startControl({
    config: { controlPort: 0, internalToken: INTERNAL_TOKEN },
    store: memoryStore({ clock: systemClock }),
    log: pino({ level: 'silent' }),
    clock: systemClock,
    random: systemRandom,
  })
  const credentials = await new ControlIssuer({ controlUrl: control.url, controlToken: undefined }).issue()
  const roomful = await Side.start('roomful', {
    BENCH_CONTROL_URL: control.url,
    BENCH_INTERNAL_TOKEN: INTERNAL_TOKEN,
    BENCH_TICK: ticks ? '1' : '0',
  })
  const bare = await Side.start('bare')
  for (let i = 0; i < rooms * members; i++) {
    const key = `r${i % rooms}`
    roomful.add(await joinRoomful(roomful.port, credentials, key), inputs(key, input ?? 'move'))
    const socket = new WebSocket(`ws://127.0.0.1:${bare.port}/${key}`)
    await once(socket, 'open')
    bare.add(socket, inputs(key, input ?? 'move'))
  }
  return {
    async measure(seconds) {
      const sent = input === undefined ? 0 : rate
      const one = await roomful.window(seconds, sent, 0)
      const other = await bare.window(seconds, sent, one.updates > 0 ? Math.round(one.bytesPerUpdate) : 0)
      return { roomful: one, bare: other }
    },
    async close() {
      await Promise.all([roomful.stop(), bare.stop()])
      await control.close()
    },
  }
}

/** A server in a process of its own, whose CPU time can be read at any moment, and its clients, which count what arrives without looking into it. */
class Side {
  readonly port: number
  readonly #child: ChildProcess
  readonly #clients: { readonly socket: WebSocket; readonly input: () => Uint8Array }[] = []
  #updates = 0
  #bytes = 0

  private constructor(child: ChildProcess, port: number) {
    this.#child = child
    this.port = port
  }

  /** Starts it, tied to core 0 where that is possible (Linux with util-linux). */
  static async start(kind: 'bare' | 'roomful', env: Record<string, string> = {}): Promise<Side> {
    const child = fork(SERVER, [kind], {
      execArgv: ['--import', 'tsx'],
      env: { ...process.env, NODE_ENV: 'production', ...env },
    })
    spawnSync('taskset', ['-a', '-c', '-p', '0', String(child.pid)])
    const ended = once(child, 'exit').then(([code]) =>
      Promise.reject(new Error(`the ${kind} server exited with ${code}`)),
    )
    const [{ port }] = (await Promise.race([once(child, 'message'), ended])) as [{ port: number }]
    ended.catch(() => undefined)
    return new Side(child, port)
  }

  add(socket: WebSocket, input: () => Uint8Array): void {
    socket.on('message', (data: Buffer) => {
      this.#updates += 1
      this.#bytes += data.length
    })
    this.#clients.push({ socket, input })
  }

  /** `payload`: the bytes of each broadcast of the bare server meanwhile; 0: there is none. */
  async window(seconds: number, rate: number, payload: number): Promise<Window> {
    await this.#sample(payload)
    await this.#run(WARM_SECONDS, rate)
    const before = await this.#sample(payload)
    const [updates, bytes] = [this.#updates, this.#bytes]
    await this.#run(seconds, rate)
    const received = this.#updates - updates
    const bytesPerUpdate = (this.#bytes - bytes) / Math.max(1, received)
    const { cpuUs, inputs } = await this.#sample(0)
    return { cpuUs: cpuUs - before.cpuUs, inputs: inputs - before.inputs, updates: received, bytesPerUpdate }
  }

  async stop(): Promise<void> {
    for (const { socket } of this.#clients) socket.terminate()
    if (this.#child.exitCode !== null) return
    const gone = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await gone
  }

  /** Sends `rate` inputs per second and client, spread evenly, from absolute deadlines. */
  async #run(seconds: number, rate: number): Promise<void> {
    const start = performance.now()
    const interval = 1_000 / (rate * this.#clients.length)
    for (let sent = 0; performance.now() < start + seconds * 1_000; ) {
      const due = rate > 0 ? Math.floor((performance.now() - start) / interval) : 0
      for (; sent < due; sent++) {
        const client = this.#clients[sent % this.#clients.length]!
        client.socket.send(client.input())
      }
      await sleep(1)
    }
  }

  async #sample(payload: number): Promise<Sample> {
    const answer = once(this.#child, 'message')
    this.#child.send(payload)
    return ((await answer) as [Sample])[0]
  }
}

/** The inputs of one client in a room. */
function inputs(key: string, type: 'move' | 'nudge'): () => Uint8Array {
  const codec = new MsgpackClientCodec()
  const somewhere = (): number => Math.floor(Math.random() * 1_000)
  const ready = Array.from({ length: VARIANTS }, () =>
    codec.encode({ t: 'message', room_id: `bench:${key}`, type, data: { x: somewhere(), y: somewhere() } }),
  )
  let next = Math.floor(Math.random() * VARIANTS)
  return () => ready[next++ % VARIANTS]!
}

/** A socket that has said hello to a node and joined `bench:key`. */
async function joinRoomful(port: number, { projectId, token }: Credentials, key: string): Promise<WebSocket> {
  const codec = new MsgpackClientCodec()
  const socket = new WebSocket(`ws://127.0.0.1:${port}`, codec.subprotocol)
  const send = (message: ClientMessage) => socket.send(codec.encode(message))
  await once(socket, 'open')
  await new Promise<void>((resolve, reject) => {
    socket.on('close', (code, reason) => reject(new Error(`the node closed with ${code} ${reason}`)))
    const listen = (data: Buffer) => {
      const message = codec.decode(data)
      if (message.t === 'welcome') send({ t: 'join', ref: 1, room_type: 'bench', options: { key } })
      if (message.t === 'error') reject(new Error(`${message.code}: ${message.message}`))
      if (message.t !== 'state.snapshot') return
      socket.off('message', listen)
      resolve()
    }
    socket.on('message', listen)
    send({ t: 'hello', project_id: projectId, token })
  })
  return socket
}
