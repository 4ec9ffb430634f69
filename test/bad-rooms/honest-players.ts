import { setTimeout as sleep } from 'node:timers/promises'
import { type Client, connect, type Room, type WebSocketConstructor } from 'roomful/client'
import { WebSocket } from 'ws'
import { quantile } from '../../loadtest/text.ts'
import { type Target, tokenFor } from '../attack/attack.ts'
import type { Applied, honest } from './rooms/honest.ts'

const PLAYERS = 6
const PLAYERS_PER_ROOM = 2
const SEND_MS = 100
/** An ack after this time is too late. */
const IN_TIME_MS = 2000
/** Pause before a player joins again. */
const AGAIN_MS = 250
/** Time limit for the last acks. */
const PATIENCE_MS = 10_000

/** Measurements of the honest players. */
export interface Experience {
  /** Messages that were due, including those of players without a seat. */
  readonly due: number
  /** Messages that were acked within 2 s. */
  readonly in_time: number
  /** 99th percentile of the time to the ack, in milliseconds. */
  readonly ack_p99_ms: number
  /** Acked messages that are not in the final state. */
  readonly lost: number
  /** Messages that were applied more than once. */
  readonly doubled: number
}

/** Honest players, in rooms of two, who are connected to all nodes in turn. Each sends 10 reliable messages a second. */
export class HonestPlayers {
  readonly #target: Target
  readonly #players: readonly HonestPlayer[]
  readonly #timers: readonly NodeJS.Timeout[]

  private constructor(target: Target, players: readonly HonestPlayer[]) {
    this.#target = target
    this.#players = players
    this.#timers = players.map((player) => setInterval(() => player.act(), SEND_MS))
  }

  /** Joins all players, and starts to play. */
  static async gather(target: Target): Promise<HonestPlayers> {
    const players: HonestPlayer[] = []
    for (let i = 0; i < PLAYERS; i++) {
      const name = `honest-${i}`
      const url = target.wsUrls[i % target.wsUrls.length]!
      const token = await tokenFor(target, { sub: name })
      const player = new HonestPlayer({ name, url, token, target, key: keyOf(i) })
      await player.enter()
      players.push(player)
    }
    return new HonestPlayers(target, players)
  }

  /** Share of the messages that were acked in time, from 0 to 1. Messages that may still be acked in time do not count. */
  get share(): number {
    const open = this.#players.reduce((sum, player) => sum + player.open, 0)
    return this.#inTime / Math.max(1, this.#due - open)
  }

  /** Stops sending. */
  stop(): void {
    for (const timer of this.#timers) clearInterval(timer)
  }

  /** Waits for the last acks, and compares the acked messages with the final states. */
  async end(): Promise<Experience> {
    const deadline = performance.now() + PATIENCE_MS
    while (this.#players.some(({ waiting }) => waiting.size > 0) && performance.now() < deadline)
      await sleep(50)
    const applied = await Promise.all(this.#players.map((_, i) => this.#applied(i).catch(() => undefined)))
    const lost = this.#players.reduce((sum, player, i) => sum + player.lost(applied[i]), 0)
    const doubled = applied.reduce((sum, found) => sum + (found?.doubled ?? 0), 0)
    for (const player of this.#players) player.leave()
    const acks = this.#players.flatMap((player) => [...player.acks.values()])
    // Without an ack no limit holds.
    const ack_p99_ms = quantile(acks, 0.99, Number.POSITIVE_INFINITY)
    return { due: this.#due, in_time: this.#inTime, ack_p99_ms, lost, doubled }
  }

  get #due(): number {
    return this.#players.reduce((sum, { due }) => sum + due, 0)
  }

  get #inTime(): number {
    return this.#players.reduce((sum, { inTime }) => sum + inTime, 0)
  }

  /** Returns the applied messages of a player, as a new member sees them. */
  async #applied(index: number): Promise<Applied | undefined> {
    const { frontUrl, projectId } = this.#target
    const client = await connect(frontUrl, { projectId, token: await tokenFor(this.#target) })
    try {
      const room = await client.join<typeof honest>('honest', { key: keyOf(index) })
      return room.state.players[this.#players[index]!.name] as Applied | undefined
    } finally {
      client.close()
    }
  }
}

const keyOf = (index: number): string => `room-${Math.floor(index / PLAYERS_PER_ROOM)}`

interface HonestPlayerOptions {
  readonly name: string
  /** The node to which it connects first. */
  readonly url: string
  readonly token: string
  readonly target: Target
  /** The key of its room. */
  readonly key: string
}

/** An honest player. It joins again after it has lost its seat. */
class HonestPlayer {
  /** By number of the message, the time to its ack in milliseconds. */
  readonly acks = new Map<number, number>()
  readonly name: string
  /** By number of the message, the time at which it was sent. Only messages without an outcome. */
  readonly waiting = new Map<number, number>()
  due = 0
  inTime = 0
  readonly #options: HonestPlayerOptions
  #client: Client | undefined
  #room: Room<typeof honest> | undefined
  #sent = 0
  #left = false

  constructor(options: HonestPlayerOptions) {
    this.name = options.name
    this.#options = options
  }

  /** Connects and joins the room. */
  async enter(): Promise<void> {
    const { url, token, target, key } = this.#options
    const { WebSocket } = playerSocket(this.#client ? target.frontUrl : url, target.frontUrl)
    const { projectId } = target
    this.#client = await connect(url, {
      projectId,
      token,
      WebSocket,
      reroute: false,
      onError: () => undefined,
    })
    const room = await this.#client.join<typeof honest>('honest', { key })
    room.onLeave(() => void this.#enterAgain())
    this.#room = room
  }

  /** Sends the next message. Without a seat, only counts it as due. */
  act(): void {
    this.due += 1
    if (!this.#room) return
    const n = ++this.#sent
    const at = performance.now()
    this.waiting.set(n, at)
    const acked = (): void => {
      const ms = performance.now() - at
      this.acks.set(n, ms)
      if (ms <= IN_TIME_MS) this.inTime += 1
    }
    void this.#room
      .send('add', { n })
      .then(acked, () => undefined)
      .finally(() => this.waiting.delete(n))
  }

  /** Number of messages that may still be acked in time. */
  get open(): number {
    const now = performance.now()
    return [...this.waiting.values()].filter((at) => now - at <= IN_TIME_MS).length
  }

  /** Returns the number of acked messages that the room has not applied. */
  lost(applied: Applied = { last: 0, skipped: [], doubled: 0 }): number {
    const isLost = (n: number): boolean =>
      n > applied.last || applied.skipped.some(([from, to]) => n >= from && n <= to)
    return [...this.acks.keys()].filter(isLost).length
  }

  leave(): void {
    this.#left = true
    this.#client?.close()
  }

  async #enterAgain(): Promise<void> {
    this.#room = undefined
    while (!this.#left && !this.#room) {
      this.#client?.close()
      await this.enter().catch(() => sleep(AGAIN_MS))
    }
  }
}

/** WebSocket class for one SDK client. Its first connection uses `firstUrl`, all later ones use the load balancer. */
export function playerSocket(firstUrl: string, frontUrl: string) {
  let next = firstUrl
  const open = new Set<WebSocket>()
  class PlayerSocket extends WebSocket {
    constructor(_url: string, protocols: string[]) {
      super(next, protocols)
      next = frontUrl
      open.add(this)
      this.once('close', () => open.delete(this))
    }
  }
  return {
    WebSocket: PlayerSocket as unknown as WebSocketConstructor,
    /** Breaks the connection without a closing handshake. */
    cut: () => {
      for (const socket of open) socket.terminate()
    },
  }
}
