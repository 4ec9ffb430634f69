import { type Client, type ConnectOptions, connect, type Room } from 'roomful/client'
import type { DecodedMessage } from '../../shared/protocol/codec.ts'
import type { ledgerRoom } from './cluster-room.ts'
import { doorsSocket, type Tamper } from './cluster-socket.ts'
import { until } from './redis-admin.ts'

type LedgerRoom = ReturnType<typeof ledgerRoom>

/** How a player comes to its room. */
export interface PlayerOptions {
  readonly projectId: string
  readonly token: string
  readonly roomType: string
  readonly key: string
  /** Where connections may go, asked anew for each. */
  readonly doors: () => readonly string[]
  readonly tamper?: Tamper
  /** Whom to trust behind `wss:`, PEM. */
  readonly ca?: string
  readonly connect?: Partial<ConnectOptions>
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
    room.onMessage('added', ({ by, n }) => {
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
      if (STREAM.includes(message.t)) heard.push(message as unknown as Heard)
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

  async isOnline(): Promise<void> {
    await until('the player is online', async () => this.client.status === 'online')
  }

  close(): void {
    this.client.close()
  }
}
