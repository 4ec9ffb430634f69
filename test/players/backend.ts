import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { type Client, type ConnectOptions, connect, type Room } from 'roomful/client'
import { RoomfulError as RoomfulErrorOfServer } from 'roomful/server'
import type { WebSocket } from 'ws'
import { Backend } from '../../server/backend.ts'
import { sleep } from '../../shared/clock.ts'
import { notifyKeys, notifySignature } from '../../shared/notify-keys.ts'
import { type Random, systemRandom } from '../../shared/random.ts'
import type { BackendHistory, BackendRecord, Without } from '../chaos/checker/history.ts'
import type { Mood, Notices, OwnedRoom, System, SystemControl } from '../chaos/harness/system.ts'
import { type bankRoom, REFUSALS, type Refusal } from '../chaos/rooms.ts'
import { SeededRandom } from '../kit/seeded-random.ts'
import { callControl } from '../support/calls.ts'
import type { ClientParts } from './player.ts'
import { Actor } from './sdk.ts'

type Bank = ReturnType<typeof bankRoom>
type Note = (note: Without<BackendRecord, 'at'>) => void

/** Shorter than the default, because calls that wait for a lost room would delay the end of the run. */
const TIMEOUT_MS = 8000
const LAST_TIMEOUT_MS = 25_000
/** Number of concurrent calls at the end, when all calls are repeated. */
const LAST_CONCURRENT = 4
/** A room keeps 2,000 outcomes for ten minutes. With more calls per second, outcomes would be deleted during a run. */
const PAUSE_MS = 120
const GUESTS = 3
const LOOK_MS = 200
/** Statuses that are no outcome of a call. The SDK repeats the request. */
const NO_OUTCOME = [429, 502, 503, 504]

/** A call with its idempotency id. */
interface Call {
  readonly id: string
  readonly room: string
  readonly what: 'grant' | 'close'
  readonly refuse: Refusal | null
  readonly notices: number
}

interface BackendsOptions {
  readonly count: number
  readonly seed: number
  readonly projectId: string
  readonly system: System
  readonly control: SystemControl
}

/** Backends that call banks, repeat each other's calls, close banks, kick and ban. Also the guests in the banks, and the webhook. */
export class Backends {
  readonly rooms: BackendHistory['rooms'] = (['journal', 'snapshot', 'journal'] as const).map(
    (durability, i) => ({
      room: `chaos-bank-${durability}:b${i}`,
      durability,
    }),
  )
  readonly #options: BackendsOptions
  readonly #records: BackendRecord[] = []
  readonly #calls: Call[] = []
  readonly #guests: Guest[]
  readonly #random: SeededRandom
  readonly #key: string
  readonly #working: Promise<void>[] = []
  #resting = false
  /** True when all last calls have their answers. */
  #finished = false
  /** Players whose unban is not confirmed. */
  readonly #banned = new Set<string>()

  private constructor(options: BackendsOptions, key: string, guests: Guest[], random: SeededRandom) {
    this.#options = options
    this.#key = key
    this.#guests = guests
    this.#random = random
  }

  /** Creates the key of the backends and the tokens of the guests. */
  static async prepare(options: BackendsOptions): Promise<Backends> {
    const { projectId, seed, system, control } = options
    const random = new SeededRandom(Math.imul(seed + 11, 0x27d4eb2f))
    const scopes = ['room:call', 'room:read', 'player:manage']
    const path = `/projects/${projectId}/keys`
    const { secret = '' } = await callControl(control.url, 'POST', path, { scopes }, {}, control.fetch)
    const guests: Guest[] = []
    const backends = new Backends(options, secret, guests, random)
    for (let i = 0; i < GUESTS; i++) {
      const name = `guest${i}`
      const parts = {
        name,
        projectId,
        token: await system.tokenOf(projectId, name),
        doors: () => system.doors(),
        random: () => random.float(),
        clock: system.clock,
        dial: system.dial,
      }
      const rooms = backends.rooms.map(({ room }) => room)
      guests.push(new Guest({ ...parts, rooms, note: backends.#note }))
    }
    return backends
  }

  start(): void {
    const { count, control } = this.#options
    const { notices } = control
    notices.onNotice = (notice, body, accepted) => this.#note({ kind: 'received', notice, body, accepted })
    notices.mood = () => {
      const draw = this.#random.float()
      if (this.#resting || draw > 0.25) return 'accepts'
      return draw < 0.17 ? 'fails' : draw < 0.21 ? 'silent' : 'late'
    }
    for (const guest of this.#guests) guest.start()
    for (let i = 0; i < count; i++) this.#working.push(this.#work(i))
    this.#working.push(this.#moderate())
  }

  /** Stops new calls, and repeats all calls until each has an answer. */
  rest(): void {
    this.#resting = true
    for (const guest of this.#guests) guest.rest()
    void this.#last().finally(() => {
      this.#finished = true
    })
  }

  /** Resolves to true when all calls are answered, all guests have seats and all notices have arrived. Resolves to false after `withinMs`. */
  async finished(withinMs: number): Promise<boolean> {
    const { system, projectId } = this.#options
    const deadline = system.clock.monotonic() + withinMs
    const store = await system.openStore()
    try {
      for (;;) {
        const waiting = await Promise.all(
          this.rooms.map(({ room }) => store.notices.count(`${projectId}/${room}`)),
        )
        const isEmpty = waiting.every((count) => count === 0)
        if (this.#finished && isEmpty && this.#guests.every(({ seated }) => seated)) return true
        if (system.clock.monotonic() > deadline) return false
        await sleep(system.clock, LOOK_MS)
      }
    } finally {
      await store.close()
    }
  }

  close(): void {
    this.#resting = true
    for (const guest of this.#guests) guest.close()
  }

  /** Returns all records up to `at`. `banks`: the banks at that time. */
  history(at: number, banks: readonly OwnedRoom[]): BackendHistory {
    return {
      rooms: this.rooms,
      records: this.#records.filter((record) => record.at <= at),
      end: {
        at,
        rooms: banks.map(({ room, node, state }) => ({ room, node, state })),
        seatless: this.#guests.filter(({ seated }) => !seated).map(({ name }) => name),
      },
    }
  }

  readonly #note: Note = (note) =>
    void this.#records.push({ at: this.#options.system.clock.monotonic(), ...note } as BackendRecord)

  async #work(backend: number): Promise<void> {
    const { clock } = this.#options.system
    for (let n = 0; !this.#resting; n++) {
      const draw = this.#random.float()
      const known = this.#calls[this.#random.integer(0, Math.max(0, this.#calls.length - 1))]
      if (draw < 0.35 && known) await this.#send(known, TIMEOUT_MS)
      else {
        const { room } = this.rooms[this.#random.integer(0, this.rooms.length - 1)]!
        const call: Call = {
          id: `${backend}.${n}`,
          room,
          what: draw > 0.96 ? 'close' : 'grant',
          refuse: draw > 0.96 || draw < 0.85 ? null : REFUSALS[n % REFUSALS.length]!,
          notices: n % 3,
        }
        this.#calls.push(call)
        this.#note({ kind: 'called', call: call.id, room, what: call.what, refuse: call.refuse })
        await this.#send(call, TIMEOUT_MS)
      }
      await sleep(clock, PAUSE_MS * 2 * this.#random.float())
    }
  }

  /** Sends a call, or repeats it. The backend's `fetch` records the answer. */
  async #send({ id, room: roomId, what, refuse, notices }: Call, timeoutMs: number): Promise<void> {
    const [type = '', key = ''] = roomId.split(':')
    const room = this.#game(timeoutMs, id).room<Bank>(type as 'chaos-bank-journal', key)
    try {
      if (what === 'close') await room.close({ id })
      else await room.call('grant', { call: id, refuse, notices }, { id, open: true })
    } catch (error) {
      if (!(error instanceof RoomfulErrorOfServer)) throw error
    }
  }

  /** Creates a backend that loses one of ten answers. */
  #game(timeoutMs: number, call?: string): Backend {
    const { system, control, projectId } = this.#options
    const random: Random = { float: () => this.#random.float(), bytes: (count) => systemRandom.bytes(count) }
    return new Backend(
      { url: control.url, projectId, key: this.#key, timeoutMs },
      {
        fetch: async (url, init) => {
          const response = await (control.fetch ?? fetch)(url, init)
          const body = await response.text()
          if (call !== undefined && !NO_OUTCOME.includes(response.status))
            this.#answered(call, response.status, body)
          if (!this.#resting && this.#random.float() < 0.1) throw new TypeError('the answer is lost')
          return new Response(body, response)
        },
        random,
        monotonic: () => system.clock.monotonic(),
        sleep: (ms) => sleep(system.clock, ms),
      },
    )
  }

  #answered(call: string, status: number, body: string): void {
    if (status === 200) {
      this.#note({ kind: 'answered', call, code: null, answer: body })
      return
    }
    const { code = String(status), detail = body } = JSON.parse(body)
    this.#note({ kind: 'answered', call, code, answer: `${code}: ${detail}` })
  }

  /** Kicks and bans one guest after the other, so that each guest is affected by one decision at a time. */
  async #moderate(): Promise<void> {
    const { clock } = this.#options.system
    for (let n = 0; !this.#resting; n++) {
      await sleep(clock, 500 + 1000 * this.#random.float())
      const { name: sub, room } = this.#guests[n % this.#guests.length]!
      const game = this.#game(TIMEOUT_MS)
      if (n % 2 === 0 && room !== undefined) {
        const [type = '', key = ''] = room.split(':')
        const sent = clock.monotonic()
        const seats = await answerOf(game.room(type, key).kick(sub, { reason: 'chaos' }))
        if (seats !== undefined) this.#note({ kind: 'kicked', sub, room, sent, seats })
      } else {
        this.#banned.add(sub)
        if ((await answerOf(game.ban(sub).then(() => true))) !== undefined)
          this.#note({ kind: 'banned', sub })
        await sleep(clock, 2500)
        await this.#unban(game, sub)
      }
    }
  }

  async #unban(game: Backend, sub: string): Promise<void> {
    this.#note({ kind: 'unbanning', sub })
    if ((await answerOf(game.unban(sub).then(() => true))) !== undefined) this.#banned.delete(sub)
  }

  async #last(): Promise<void> {
    await Promise.all(this.#working)
    for (const sub of this.#banned) await this.#unban(this.#game(LAST_TIMEOUT_MS), sub)
    const queued = [...this.#calls]
    const work = async () => {
      for (let call = queued.shift(); call; call = queued.shift()) await this.#send(call, LAST_TIMEOUT_MS)
    }
    await Promise.all(Array.from({ length: LAST_CONCURRENT }, work))
  }
}

/** Resolves to undefined if a request fails. The request may or may not have been carried out. */
async function answerOf<T>(request: Promise<T>): Promise<T | undefined> {
  try {
    return await request
  } catch (error) {
    if (!(error instanceof RoomfulErrorOfServer)) throw error
    return undefined
  }
}

/** The name is also the `sub` of the guest. */
interface GuestParts extends ClientParts {
  readonly rooms: readonly string[]
  readonly note: Note
}

const CONNECT_AGAIN_MS = 150

/** A player with the SDK who joins a bank, and joins again after it has lost its seat. While it rests, it does not leave its bank. */
class Guest extends Actor<Client, GuestParts> {
  #room: Room<Bank> | undefined
  #seat: { readonly room: string; readonly member: string } | undefined
  /** Node of its last connection. */
  #node = ''
  /** Node of the last record `online`. Undefined: the last record is `offline`. */
  #onlineAt: string | undefined

  /** Bank in which it has a seat. */
  get room(): string | undefined {
    return this.#seat?.room
  }

  get seated(): boolean {
    return this.client?.status === 'online' && this.#room?.status === 'joined'
  }

  protected pause(): number {
    return CONNECT_AGAIN_MS
  }

  protected override dialled(socket: WebSocket, node: string): void {
    socket.once('open', () => {
      this.#node = node
      // A client that moves from a draining node stays online.
      this.#changed()
    })
  }

  protected connect(url: string, options: ConnectOptions): Promise<Client> {
    this.client = undefined
    this.#room = undefined
    return connect(url, options)
  }

  protected connected(client: Client): void {
    client.onConnectionChange(() => this.#changed())
    this.#changed()
  }

  protected async act(client: Client): Promise<void> {
    if (this.#room?.status === 'left') this.#room = undefined
    if (!this.#room) await this.#join(client)
    else if (!this.resting && this.parts.random() < 0.02) await this.#room.leave()
  }

  async #join(client: Client): Promise<void> {
    const { rooms, random } = this.parts
    const [type = '', key = ''] = rooms[Math.floor(random() * rooms.length)]!.split(':')
    const room = await client.join<Bank>(type as 'chaos-bank-journal', { key })
    this.#room = room
    room.onStateChange(() => this.#changed())
    room.onLeave(() => this.#changed())
    this.#changed()
  }

  /** Records changes of its connection and its seat. */
  #changed(): void {
    const { name: sub, note } = this.parts
    const node = this.client?.status === 'online' ? this.#node : undefined
    if (node !== this.#onlineAt)
      note(node === undefined ? { kind: 'offline', sub } : { kind: 'online', sub, node })
    this.#onlineAt = node
    const room = this.#room
    const member = room && room.status !== 'left' ? room.memberId : undefined
    if (member === this.#seat?.member) return
    if (this.#seat) note({ kind: 'unseated', sub, ...this.#seat })
    this.#seat = room && member !== undefined ? { room: room.id, member } : undefined
    if (this.#seat) note({ kind: 'seated', sub, ...this.#seat })
  }
}

const KEY = Buffer.from('the key of the notices of chaos')
/** Longer than a node's timeout for a notice. */
const LATE_MS = 2500

/** The webhook of a backend (`NOTIFY_URL`). Depending on its `mood` it accepts, fails, does not answer, or answers after the node's timeout. */
export class NoticeReceiver implements Notices {
  /** Value of `NOTIFY_SECRET`. */
  readonly secret = `whsec_${KEY.toString('base64')}`
  onNotice: Notices['onNotice'] = () => {}
  mood: () => Mood = () => 'accepts'
  readonly #server = createServer((request, response) => void this.#receive(request, response))

  static async open(): Promise<NoticeReceiver> {
    const receiver = new NoticeReceiver()
    await new Promise<void>((resolve) => receiver.#server.listen(0, '127.0.0.1', resolve))
    return receiver
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/notices`
  }

  close(): void {
    this.#server.closeAllConnections()
    this.#server.close()
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(request).catch(() => undefined)
    // The node was killed while it sent.
    if (body === undefined) return
    const {
      'webhook-id': id,
      'webhook-timestamp': timestamp,
      'webhook-signature': signature,
    } = request.headers
    // The time is not checked, because the clocks of nodes jump.
    const [notifyKey = ''] = notifyKeys([this.secret], JSON.parse(body).project_id)
    const expected = notifySignature(notifyKey, `${id}.${timestamp}.${body}`)
    if (signature !== `v1,${expected}`) return void response.writeHead(401).end()
    const mood = this.mood()
    this.onNotice(String(id), body, mood === 'accepts')
    if (mood === 'silent') return
    if (mood === 'late') await new Promise((resolve) => setTimeout(resolve, LATE_MS))
    response.writeHead(mood === 'fails' ? 500 : 204).end()
  }
}
