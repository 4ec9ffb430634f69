import { quantile } from '../../loadtest/text.ts'
import { PATIENCE_MS } from '../support/raw-client.ts'
import { enter, join, type Player, type Target, tokenFor } from './attack.ts'

/** Interval of a bystander's pings, and of its messages. */
const PING_MS = 25
const ACT_MS = 100

/** Measurements of honest players. */
export interface Experience {
  /** Round trips of pings, and times from messages to acks, milliseconds. */
  readonly pingP50: number
  readonly pingP99: number
  readonly ackP99: number
  readonly pings: number
  /** Number of players whose connection has ended. */
  readonly lost: number
  /** Number of players with a message that has no ack a minute after the end. */
  readonly unanswered: number
}

/** Honest players that play during an attack, in one room for each node. */
export class Bystanders {
  readonly #players: Player[]
  readonly #timers: NodeJS.Timeout[] = []
  readonly #sent = new Map<string, number>()
  #pings: number[] = []
  #acks: number[] = []
  readonly #refs: number[]

  private constructor(players: Player[]) {
    this.#players = players
    this.#refs = players.map(() => 0)
    players.forEach((player, index) => {
      this.#listen(player, index)
      this.#timers.push(setInterval(() => this.#ping(player), PING_MS))
      this.#timers.push(setInterval(() => this.#act(player, index), ACT_MS))
    })
  }

  /** Connects three players to each node, and joins them to the node's room. */
  static async gather(target: Target): Promise<Bystanders> {
    const players: Player[] = []
    for (const [node, url] of target.wsUrls.entries())
      for (let i = 0; i < 3; i++) {
        const player = await enter(target, url, await tokenFor(target, { sub: `bystander-${node}-${i}` }))
        if (!player || !(await join(player, 'meadow', `of-${node}`)))
          throw new Error('a bystander was refused')
        players.push(player)
      }
    return new Bystanders(players)
  }

  /** Starts a new measurement. */
  begin(): void {
    this.#pings = []
    this.#acks = []
  }

  /** Returns the measurements since `begin`. */
  async experience(): Promise<Experience> {
    const open = [...this.#sent.keys()]
    const deadline = performance.now() + PATIENCE_MS
    const unanswered = (): string[] => open.filter((name) => this.#sent.has(name))
    while (unanswered().length > 0 && performance.now() < deadline)
      await new Promise((resolve) => setTimeout(resolve, 20))
    return {
      // Without an answer no limit holds.
      pingP50: quantile(this.#pings, 0.5, Number.POSITIVE_INFINITY),
      pingP99: quantile(this.#pings, 0.99, Number.POSITIVE_INFINITY),
      ackP99: quantile(this.#acks, 0.99, Number.POSITIVE_INFINITY),
      pings: this.#pings.length,
      lost: this.#players.filter(({ client }) => client.ended !== undefined).length,
      unanswered: new Set(unanswered().map((name) => name.split('/')[0])).size,
    }
  }

  leave(): void {
    for (const timer of this.#timers) clearInterval(timer)
    for (const { client } of this.#players) client.cut()
  }

  #listen({ client }: Player, index: number): void {
    client.onMessage = (message) => {
      if (message.t === 'pong') this.#pings.push(performance.now() - Number(message.at))
      if (message.t !== 'ack') return
      for (const [name, at] of this.#sent) {
        const [player, ref] = name.split('/')
        if (Number(player) !== index || Number(ref) > Number(message.ref)) continue
        this.#sent.delete(name)
        this.#acks.push(performance.now() - at)
      }
    }
  }

  #ping({ client }: Player): void {
    client.send({ t: 'ping', at: performance.now() })
  }

  #act({ client }: Player, index: number): void {
    const ref = ++this.#refs[index]!
    this.#sent.set(`${index}/${ref}`, performance.now())
    const roomId = `meadow:of-${Math.floor(index / 3)}`
    client.send({ t: 'message', room_id: roomId, type: 'add', data: { n: 1 }, ref, settled: 0 })
  }
}
