import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
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
import { ControlIssuer } from '../issuer.ts'
import type { CpuSample } from './server.ts'

const SERVER = fileURLToPath(new URL('./server.ts', import.meta.url))
const INTERNAL_TOKEN = 'bench-internal-token'
const WARM_SECONDS = 0.5
/** Ready inputs, sent in turn, so that encoding them costs the generator nothing. */
const VARIANTS = 64

/** What clients send: nothing, moves that change the state, or nudges that change nothing. */
export type InputKind = 'move' | 'nudge'

export interface BenchOptions {
  readonly rooms: number
  /** Clients in each room. */
  readonly members: number
  /** Whether every player moves each tick. */
  readonly ticks: boolean
  readonly input: InputKind | undefined
  /** Inputs per second and client. */
  readonly rate: number
}

/** What a server did in a window of time. */
export interface Window {
  readonly cpuUs: number
  /** Updates that its clients received. */
  readonly updates: number
  /** Inputs that it handled. */
  readonly inputs: number
  readonly bytesPerUpdate: number
}

/** A node and the bare server beside it, each with the same clients; both are measured in turn, so that a machine that slows down does so for both. */
export class Bench {
  readonly #options: BenchOptions
  readonly #roomful: Side
  readonly #bare: Side
  readonly #close: () => Promise<void>

  private constructor(options: BenchOptions, roomful: Side, bare: Side, close: () => Promise<void>) {
    this.#options = options
    this.#roomful = roomful
    this.#bare = bare
    this.#close = close
  }

  /** Resolves when both servers have their clients. */
  static async start(options: BenchOptions): Promise<Bench> {
    const control = await startControl({
      config: { controlPort: 0, internalToken: INTERNAL_TOKEN },
      store: memoryStore({ clock: systemClock }),
      log: pino({ level: 'silent' }),
      clock: systemClock,
      random: systemRandom,
    })
    const issuer = new ControlIssuer({ controlUrl: control.url, controlToken: undefined })
    const type = options.input ?? 'move'
    const roomful = await Side.start('roomful', {
      BENCH_CONTROL_URL: control.url,
      BENCH_INTERNAL_TOKEN: INTERNAL_TOKEN,
      BENCH_TICK: options.ticks ? '1' : '0',
    })
    const bare = await Side.start('bare')
    for (let i = 0; i < options.rooms * options.members; i++) {
      const key = `r${i % options.rooms}`
      const { projectId, token } = await issuer.issue()
      roomful.add(await joinRoomful(roomful.port, { project_id: projectId, token }, key), inputs(key, type))
      bare.add(await joinBare(bare.port, key), inputs(key, type))
    }
    return new Bench(options, roomful, bare, async () => {
      await Promise.all([roomful.stop(), bare.stop()])
      await control.close()
    })
  }

  /** One window of each. The bare server broadcasts as many bytes as roomful just did. */
  async measure(seconds: number): Promise<{ roomful: Window; bare: Window }> {
    const rate = this.#options.input === undefined ? 0 : this.#options.rate
    const roomful = await this.#roomful.window(seconds, rate)
    this.#bare.payload(roomful.updates > 0 ? Math.round(roomful.bytesPerUpdate) : 0)
    const bare = await this.#bare.window(seconds, rate)
    this.#bare.payload(0)
    return { roomful, bare }
  }

  close(): Promise<void> {
    return this.#close()
  }
}

/** Whether processes can be tied to a core here (Linux with util-linux). */
const canPin = (): boolean => spawnSync('taskset', ['-p', String(process.pid)]).status === 0

/** A server in a process of its own, whose CPU time can be read at any moment, and its clients, which count what arrives without looking into it. */
class Side {
  readonly port: number
  readonly #child: ChildProcess
  readonly #clients: { readonly socket: WebSocket; readonly input: () => Uint8Array }[] = []
  #samples = 0
  #updates = 0
  #bytes = 0

  private constructor(child: ChildProcess, port: number) {
    this.#child = child
    this.port = port
  }

  /** Starts it, tied to core 0 where that is possible. */
  static async start(kind: 'bare' | 'roomful', env: Record<string, string> = {}): Promise<Side> {
    const command = [process.execPath, '--import', 'tsx', SERVER, kind]
    if (canPin()) command.unshift('taskset', '-c', '0')
    const child = spawn(command[0]!, command.slice(1), {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      env: { ...process.env, NODE_ENV: 'production', ...env },
    })
    const [message] = (await Promise.race([
      once(child, 'message'),
      once(child, 'exit').then(([code]) =>
        Promise.reject(new Error(`the ${kind} server exited with ${code}`)),
      ),
    ])) as [{ ready: number }]
    return new Side(child, message.ready)
  }

  add(socket: WebSocket, input: () => Uint8Array): void {
    socket.on('message', (data: Buffer) => {
      this.#updates += 1
      this.#bytes += data.length
    })
    this.#clients.push({ socket, input })
  }

  /** The bytes of each broadcast (of the bare server); 0: none. */
  payload(bytes: number): void {
    this.#child.send({ payload: bytes })
  }

  async window(seconds: number, rate: number): Promise<Window> {
    await this.#run(WARM_SECONDS, rate)
    const before = await this.#sample()
    const [updates, bytes] = [this.#updates, this.#bytes]
    await this.#run(seconds, rate)
    const received = this.#updates - updates
    const bytesPerUpdate = (this.#bytes - bytes) / Math.max(1, received)
    const after = await this.#sample()
    return {
      cpuUs: after.cpuUs - before.cpuUs,
      inputs: after.inputs - before.inputs,
      updates: received,
      bytesPerUpdate,
    }
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

  #sample(): Promise<CpuSample> {
    this.#samples += 1
    const id = this.#samples
    return new Promise((resolve) => {
      const listen = (answer: CpuSample & { sample: number }) => {
        if (answer.sample !== id) return
        this.#child.off('message', listen)
        resolve(answer)
      }
      this.#child.on('message', listen)
      this.#child.send({ sample: id })
    })
  }
}

/** The inputs of one client in a room. */
function inputs(key: string, type: InputKind): () => Uint8Array {
  const codec = new MsgpackClientCodec()
  const somewhere = (): number => Math.floor(Math.random() * 1_000)
  const ready = Array.from({ length: VARIANTS }, () =>
    codec.encode({ t: 'message', room_id: `bench:${key}`, type, data: { x: somewhere(), y: somewhere() } }),
  )
  let next = Math.floor(Math.random() * VARIANTS)
  return () => {
    next = (next + 1) % VARIANTS
    return ready[next]!
  }
}

/** A socket that has said hello to a node and joined `bench:key`. */
async function joinRoomful(
  port: number,
  credentials: { project_id: string; token: string },
  key: string,
): Promise<WebSocket> {
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
    send({ t: 'hello', ...credentials })
  })
  return socket
}

/** A client of the bare server; the room is the path. */
async function joinBare(port: number, key: string): Promise<WebSocket> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/${key}`)
  await once(socket, 'open')
  return socket
}
