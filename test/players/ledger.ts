import { type Client, type ConnectOptions, connect, type Room } from 'roomful/client'
import { expect } from 'vitest'
import type { RoomDescription } from '../../dataplane/descriptions.ts'
import { JournalFormat } from '../../dataplane/room/journal.ts'
import type { RestoredRoom } from '../../dataplane/room/restore.ts'
import { SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import type { ledgerRoom } from '../support/cluster-room.ts'
import { until } from '../support/redis-server.ts'
import { inTurn, Network } from './network.ts'

type LedgerRoom = ReturnType<typeof ledgerRoom>

/** Options of `Player.join`. */
export interface PlayerOptions {
  readonly projectId: string
  readonly token: string
  readonly roomType: string
  readonly key: string
  /** Returns the websocket addresses for the next connection. */
  readonly doors: () => readonly string[]
  readonly tamper?: Tamper
  /** Certificate to trust for `wss:`, PEM. */
  readonly ca?: string
  readonly connect?: Partial<Extract<ConnectOptions, { readonly dev?: undefined }>>
}

/** A frame of a room's stream that a member has received. `epoch`: also if the frame omits it. */
export interface StreamFrame {
  readonly t: 'state.snapshot' | 'state.resync' | 'state.patch'
  readonly epoch: number
  readonly seq: number
  readonly checksum: number
}

const STREAM = ['state.snapshot', 'state.resync', 'state.patch']

/** A player in one ledger room, with the SDK. It adds 1, 2, 3, …, and records the outcomes and the frames that it receives. */
export class Player {
  readonly client: Client
  readonly room: Room<LedgerRoom>
  /** All received frames of the room's stream, oldest first. */
  readonly heard: StreamFrame[]
  /** By member id, the numbers that the member has added, from the room's events. */
  readonly added = new Map<string, number[]>()
  /** Errors of the client and of messages, and an unexpected end of the seat. */
  readonly errors: unknown[] = []
  readonly #network: Network
  #sent = 0
  #acked = 0
  #longestWaitMs = 0
  readonly #open = new Set<Promise<void>>()

  private constructor(client: Client, room: Room<LedgerRoom>, heard: StreamFrame[], network: Network) {
    this.client = client
    this.room = room
    this.heard = heard
    this.#network = network
    room.on('added', ({ by, n }) => {
      const numbers = this.added.get(by) ?? []
      numbers.push(n)
      this.added.set(by, numbers)
    })
    room.onLeave((reason, error) => reason !== 'left' && this.errors.push(error ?? reason))
  }

  static async join(options: PlayerOptions): Promise<Player> {
    const { projectId, token, roomType, key, doors, tamper = (frame) => frame, ca } = options
    const heard: StreamFrame[] = []
    const codec = new MsgpackClientCodec()
    const network = new Network({
      to: inTurn(doors, ca),
      frame: (frame, socket) => {
        if (network.hears(socket)) {
          const message = codec.decode(Uint8Array.from(frame))
          if (STREAM.includes(message.t))
            heard.push({ epoch: heard.at(-1)?.epoch, ...message } as StreamFrame)
        }
        return tamper(frame)
      },
    })
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

  /** Address of its node. */
  get door(): string | undefined {
    return this.#network.url
  }

  /** Breaks every connection, without a close frame. */
  cut(): void {
    this.#network.cut()
  }

  get sent(): number {
    return this.#sent
  }

  /** Number of acknowledged messages. */
  get acked(): number {
    return this.#acked
  }

  /** Longest time until an ack, in milliseconds: the longest pause for this player. */
  get longestWaitMs(): number {
    return this.#longestWaitMs
  }

  /** Last received frame of the stream: the epoch, seq and checksum of this player's copy. */
  get position(): StreamFrame {
    const last = this.heard.at(-1)
    if (!last) throw new Error('no frame of the room was received')
    return last
  }

  /** This player's account in its copy of the room's state. */
  get account() {
    return this.room.state.accounts[this.id]
  }

  /** Adds the next number. Resolves with the ack. */
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

  /** Resets `longestWaitMs`. */
  resetWait(): void {
    this.#longestWaitMs = 0
  }

  /** Adds a number every `everyMs`. The returned function stops that, and resolves when every message has an outcome. */
  play(everyMs: number): () => Promise<void> {
    const timer = setInterval(() => {
      if (this.room.status === 'joined') this.add().catch(() => {})
    }, everyMs)
    return async () => {
      clearInterval(timer)
      await this.answered()
    }
  }

  /** Resolves when every message has an outcome: an ack or an error. */
  async answered(): Promise<void> {
    while (this.#open.size > 0) await Promise.allSettled([...this.#open])
  }

  close(): void {
    this.client.close()
  }
}

/** Replaces a frame on its way to the client. Undefined: the frame is lost. */
type Tamper = (frame: Buffer) => Buffer | undefined

/** True for a patch of `roomful.v1.msgpack`. */
export const isPatch = (frame: Buffer): boolean => frame[1] === SERVER_OPCODES['state.patch']

/** Expects no errors. The failure lists each player with errors and the stats of its client: `seatsLost` counts lost seats. */
export function expectNoErrors(players: readonly Player[]): void {
  const failed = players.filter(({ errors }) => errors.length > 0)
  expect(failed.map(({ id, errors, client }) => ({ id, errors, stats: client.stats }))).toEqual([])
}

/** The rooms of a cluster. */
interface Rooms {
  /** Returns the owner's description of a room. Undefined: no open node runs the room. */
  room(roomId: string): Promise<RoomDescription | undefined>
}

/** Waits until all players have the last flush of the room's owner. Returns the room. */
export async function agreed(cluster: Rooms, roomId: string, players: readonly Player[]) {
  let room: RoomDescription | undefined
  await until(`all members of ${roomId} are at one seq`, async () => {
    room = await cluster.room(roomId)
    return players.every(({ position }) => position.seq === room?.seq)
  })
  return room!
}

/**
 * Expects a room without losses. The room has applied each message once and in order, each copy equals the owner's state, each player has
 * received every flush and every event, and no player has an error.
 */
export async function expectIntact(
  cluster: Rooms,
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

/** Expects a complete stream: epochs never decrease, and each patch has the seq after the frame before it. */
export function expectStream(heard: readonly StreamFrame[]): void {
  heard.forEach((frame, i) => {
    const before = heard[i - 1]
    if (!before) return
    expect(frame.epoch, `an epoch after ${JSON.stringify(before)}`).toBeGreaterThanOrEqual(before.epoch)
    if (frame.t === 'state.patch') expect(frame.seq).toBe(before.seq + 1)
  })
}

/** Expects that `player` has received the event of each number that `other` added since `player` joined, once and in order. */
function expectEvents(player: Player, other: Player): void {
  const numbers = player.added.get(other.id) ?? []
  const first = numbers[0] ?? other.sent + 1
  expect(numbers).toEqual(Array.from({ length: other.sent - first + 1 }, (_, i) => first + i))
}

/** Expects one checksum for each seq, from all members. */
function expectOneHistory(players: readonly Player[]): void {
  const checksums = new Map<number, number>()
  for (const { heard } of players)
    for (const { seq, checksum } of heard) {
      const known = checksums.get(seq) ?? checksum
      expect(checksum, `checksum of seq ${seq}`).toBe(known)
      checksums.set(seq, checksum)
    }
}

/** Expects a stored room without a gap: each update has the next seq, and epochs never decrease. */
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
