import { type Client, type ConnectOptions, connect, type Room } from 'roomful/client'
import { expect } from 'vitest'
import { WebSocket } from 'ws'
import type { WebSocketConstructor } from '../../client/connection.ts'
import { JournalFormat } from '../../dataplane/rooms/journal.ts'
import type { RestoredRoom } from '../../dataplane/rooms/restore.ts'
import type { DecodedMessage } from '../../shared/protocol/codec.ts'
import { SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import type { TestCluster } from './cluster.ts'
import type { ledgerRoom } from './cluster-room.ts'
import { until } from './redis-server.ts'

type LedgerRoom = ReturnType<typeof ledgerRoom>

/** How a player comes to its room. */
export interface PlayerOptions {
  readonly projectId: string
  readonly token: string
  readonly roomType: string
  readonly key: string
  /** Where connections may go, asked again for each. */
  readonly doors: () => readonly string[]
  readonly tamper?: Tamper
  /** Whom to trust behind `wss:`, PEM. */
  readonly ca?: string
  readonly connect?: Partial<Extract<ConnectOptions, { readonly dev?: undefined }>>
}

/** A frame of the room's stream, as a member got it. */
export interface Heard {
  readonly t: 'state.snapshot' | 'state.resync' | 'state.patch'
  readonly epoch: number
  readonly seq: number
  readonly checksum: number
}

const STREAM = ['state.snapshot', 'state.resync', 'state.patch']

/** A player with the SDK in one ledger. Adds 1, 2, 3, …, and remembers what came of it and all that it was told. */
export class Player {
  readonly client: Client
  readonly room: Room<LedgerRoom>
  /** Every frame of the room's stream, in order. */
  readonly heard: Heard[]
  /** The numbers that each member was heard to add. */
  readonly added = new Map<string, number[]>()
  /** Everything that went wrong for this player's eyes. */
  readonly errors: unknown[] = []
  readonly cut: () => void
  readonly door: () => string | undefined
  #sent = 0
  #acked = 0
  #longestWaitMs = 0
  readonly #open = new Set<Promise<void>>()

  private constructor(
    client: Client,
    room: Room<LedgerRoom>,
    heard: Heard[],
    network: ReturnType<typeof doorsSocket>,
  ) {
    this.client = client
    this.room = room
    this.heard = heard
    this.cut = network.cut
    this.door = network.door
    room.on('added', ({ by, n }) => {
      const numbers = this.added.get(by) ?? []
      numbers.push(n)
      this.added.set(by, numbers)
    })
    room.onLeave((reason, error) => reason !== 'left' && this.errors.push(error ?? reason))
  }

  static async join(options: PlayerOptions): Promise<Player> {
    const { projectId, token, roomType, key, doors, tamper, ca } = options
    const heard: Heard[] = []
    const told = (message: DecodedMessage): void => {
      if (STREAM.includes(message.t)) heard.push(message as Heard)
    }
    const network = doorsSocket({ doors, told, ...(tamper && { tamper }), ...(ca && { ca }) })
    const client = await connect('ws://nowhere.invalid', {
      projectId,
      token,
      WebSocket: network.WebSocket,
      onError: (error) => player?.errors.push(error),
      ...options.connect,
    })
    const room = await client.join<LedgerRoom>(roomType as 'ledger-journal', { key })
    const player: Player | undefined = new Player(client, room, heard, network)
    return player
  }

  get id(): string {
    return this.room.memberId
  }

  get sent(): number {
    return this.#sent
  }

  /** How many were acked. */
  get acked(): number {
    return this.#acked
  }

  /** The longest that an ack took, in milliseconds: the pause that this player noticed. */
  get longestWaitMs(): number {
    return this.#longestWaitMs
  }

  /** The last frame of the stream: where this player's copy of the room stands. */
  get position(): Heard {
    const last = this.heard.at(-1)
    if (!last) throw new Error('nothing was heard of the room')
    return last
  }

  /** What the room says of this player, as this player sees it. */
  get account() {
    return this.room.state.accounts[this.id]
  }

  /** Adds the next number; resolves when it is acked. */
  add(): Promise<void> {
    const n = ++this.#sent
    const began = performance.now()
    const sending = this.room.send('add', { n }).then(
      () => {
        this.#acked += 1
        this.#longestWaitMs = Math.max(this.#longestWaitMs, performance.now() - began)
      },
      (error: unknown) => {
        this.errors.push(error)
        throw error
      },
    )
    this.#open.add(sending)
    const done = () => void this.#open.delete(sending)
    sending.then(done, done)
    return sending
  }

  /** Forgets how long acks took until now. */
  resetWait(): void {
    this.#longestWaitMs = 0
  }

  /** Adds a number every `every_ms`; the returned function stops that, and resolves when all is acked. */
  play(everyMs: number): () => Promise<void> {
    const timer = setInterval(() => {
      if (this.room.status === 'joined') this.add().catch(() => {})
    }, everyMs)
    return async () => {
      clearInterval(timer)
      await this.settled()
    }
  }

  /** Resolves when everything sent so far is acked or refused. */
  async settled(): Promise<void> {
    while (this.#open.size > 0) await Promise.allSettled([...this.#open])
  }

  close(): void {
    this.client.close()
  }
}

/** What becomes of one frame on its way to the client; undefined: it is lost. */
type Tamper = (frame: Buffer) => Buffer | undefined

/** Whether a frame of `roomful.v1.msgpack` is a patch. */
export const isPatch = (frame: Buffer): boolean => frame[1] === SERVER_OPCODES['state.patch']

/** What becomes of the connections of one client. */
interface DoorsOptions {
  /** Where a connection may go, asked again for each; default: where the SDK wants to. */
  readonly doors?: () => readonly string[]
  /** Everything the client is told, decoded, before it sees it. */
  readonly told?: (message: DecodedMessage) => void
  /** Loses or spoils frames behind `told`. */
  readonly tamper?: Tamper
  /** Whom to trust behind `wss:`, PEM; default: whom Node trusts. */
  readonly ca?: string
}

/**
 * A websocket class for the SDK's `WebSocket` option which goes to one door after the other, whatever address the SDK names: a load
 * balancer without a process.
 */
export function doorsSocket({
  doors = () => [],
  told = () => {},
  tamper = (frame) => frame,
  ca,
}: DoorsOptions = {}) {
  const open = new Set<WebSocket>()
  let codec = new MsgpackClientCodec()
  let next = 0
  /** The socket of the last hello. */
  let current: WebSocket | undefined
  class DoorsSocket extends WebSocket {
    constructor(url: string, protocols: string[]) {
      const all = doors()
      super(all[next++ % all.length] ?? url, protocols, { ca })
      open.add(this)
      this.once('close', () => open.delete(this))
    }
    override send(...args: unknown[]): void {
      current = this
      super.send(...(args as Parameters<WebSocket['send']>))
    }
    override emit(event: string | symbol, ...args: unknown[]): boolean {
      if (event !== 'message') return super.emit(event, ...args)
      const frame = Buffer.from(args[0] as ArrayBuffer)
      // Only what the SDK takes: a socket that it has let go of, or moves away from, may still have something to say.
      if (this.onmessage && this === current) hear(frame)
      const rest = tamper(frame)
      return rest === undefined ? false : super.emit('message', Uint8Array.from(rest).buffer, args[1])
    }
  }
  const hear = (frame: Buffer): void => {
    const message = codec.decode(Uint8Array.from(frame))
    if (message.t === 'welcome' && !message.resumed) codec = new MsgpackClientCodec()
    told(message)
  }
  return {
    WebSocket: DoorsSocket as WebSocketConstructor,
    /** Stops reading, as a phone in a tunnel does, until `read`. */
    stall: () => {
      for (const socket of open) socket.pause()
    },
    read: () => {
      for (const socket of open) socket.resume()
    },
    /** Ends every connection without a goodbye. */
    cut: () => {
      for (const socket of open) socket.terminate()
    },
    /** Where the present connection goes: one of the doors. */
    door: (): string | undefined => [...open].at(-1)?.url.replace(/\/$/, ''),
  }
}

/** No player met an error. The message names every player that did, and what its client counted: a lost seat shows in `seatsLost`. */
export function expectNoErrors(players: readonly Player[]): void {
  const failed = players.filter(({ errors }) => errors.length > 0)
  expect(failed.map(({ id, errors, client }) => ({ id, errors, stats: client.stats }))).toEqual([])
}

/** Resolves when all players have the flush that their room's owner delivered last; gives that one. */
export async function agreed(cluster: Pick<TestCluster, 'room'>, roomId: string, players: readonly Player[]) {
  let room: Awaited<ReturnType<TestCluster['room']>>
  await until(`all members of ${roomId} are at one seq`, async () => {
    room = await cluster.room(roomId)
    return players.every(({ position }) => position.seq === room?.seq)
  })
  return room!
}

/**
 * Holds a room without losses to all it promises: everything that each player sent is applied once and in order, every copy is the
 * owner's, each player got every flush and every event of its stream, and no one noticed an error.
 */
export async function expectIntact(
  cluster: Pick<TestCluster, 'room'>,
  roomId: string,
  players: readonly Player[],
): Promise<void> {
  const owner = await agreed(cluster, roomId, players)
  const state = owner.state as Player['room']['state']
  expectNoErrors(players)
  expect(state.disorder, 'entries out of order').toBe(0)
  for (const player of players) {
    expect(player.room.status).toBe('joined')
    expect(player.acked).toBe(player.sent)
    expect(player.room.state).toEqual(state)
    expect(player.position.checksum).toBe(owner.checksum)
    expect(state.accounts[player.id]).toEqual({ count: player.sent, last: player.sent })
    expectStream(player.heard)
    for (const other of players) expectEvents(player, other)
  }
  expectOneHistory(players)
}

/** A member's stream: epochs never go back, and every patch follows what came before it. */
export function expectStream(heard: readonly Heard[]): void {
  heard.forEach((frame, i) => {
    const before = heard[i - 1]
    if (!before) return
    expect(frame.epoch, `an epoch after ${JSON.stringify(before)}`).toBeGreaterThanOrEqual(before.epoch)
    if (frame.t === 'state.patch') expect(frame.seq).toBe(before.seq + 1)
  })
}

/** Everything that `other` added since `player` came was heard once, and in order. */
function expectEvents(player: Player, other: Player): void {
  const numbers = player.added.get(other.id) ?? []
  const first = numbers[0] ?? other.sent + 1
  expect(numbers).toEqual(Array.from({ length: other.sent - first + 1 }, (_, i) => first + i))
}

/** No two members were told different things about one flush. */
function expectOneHistory(players: readonly Player[]): void {
  const checksums = new Map<number, number>()
  for (const { heard } of players)
    for (const { seq, checksum } of heard) {
      const known = checksums.get(seq) ?? checksum
      expect(checksum, `what was told of seq ${seq}`).toBe(known)
      checksums.set(seq, checksum)
    }
}

/** What is kept of a room: its flushes follow each other without a gap, under epochs that only grow. */
export function expectGapFree({ seq, base, updates }: RestoredRoom): void {
  const format = new JournalFormat()
  let before = { epoch: base.epoch, seq: base.seq }
  for (const bytes of updates) {
    const update = format.readEntry(bytes)
    expect(update.seq).toBe(before.seq + 1)
    expect(update.epoch).toBeGreaterThanOrEqual(before.epoch)
    before = update
  }
  expect(before.seq).toBe(seq)
}
