import { setTimeout as sleep } from 'node:timers/promises'
import { type Client, connect, type Room } from 'roomful/client'
import { quantile } from '../../loadtest/text.ts'
import { call, type Target, tokenFor } from '../attack/attack.ts'
import { Network } from '../players/network.ts'
import { NO_FAULT } from './faults.ts'
import type { Applied, honest } from './rooms/honest.ts'

/** Interval at which a player sends. */
const SEND_MS = 200
/** An ack after this time is too late. */
const IN_TIME_MS = 2000
/** Pause before a player joins again. */
const AGAIN_MS = 250
/** Time limit for the last acks. */
const PATIENCE_MS = 10_000
/** Length of the window of `worst`, and the step between two windows. */
const WINDOW_MS = 10_000
const STEP_MS = 1000

/**
 * Who an honest player is: in another room type (`room`), also in another project (`project`), or a player of the bad room type who sends the
 * same messages as the attackers (`message`).
 */
type Group = 'room' | 'project' | 'message'
const GROUPS: readonly Group[] = [
  'room',
  'project',
  'message',
  'room',
  'project',
  'message',
  'room',
  'room',
  'room',
  'room',
  'project',
  'message',
]

/** Measurements of some honest players. */
export interface Experience {
  /** Messages that were due, including those of players without a seat. */
  readonly due: number
  /** Messages that were acked within 2 s. */
  readonly in_time: number
  /** Smallest share of messages acked within 2 s in ten seconds, from 0 to 1. */
  readonly worst: number
  /** 99th percentile of the time to the ack, in milliseconds. */
  readonly ack_p99_ms: number
}

/** Measurements of all honest players. */
export interface Experiences {
  /** Players in other room types and in the other project. */
  readonly others: Experience
  /** Players who send the same messages as the attackers. */
  readonly same: Experience
  /** Acked messages of the others that are not in the final state. */
  readonly lost: number
  /** Messages of the others that were applied more than once. */
  readonly doubled: number
}

/** Honest players, in rooms of two, who are connected to all nodes in turn. Each sends 5 reliable messages a second. */
export class HonestPlayers {
  readonly #players: readonly HonestPlayer[]
  readonly #timers: readonly NodeJS.Timeout[]

  private constructor(players: readonly HonestPlayer[]) {
    this.#players = players
    this.#timers = players.map((player) => setInterval(() => player.act(), SEND_MS))
  }

  /** Joins all players, and starts to play. `messages`: types of the messages of players in the bad room type. */
  static async gather(target: Target, messages: readonly string[]): Promise<HonestPlayers> {
    const project = await call(target, '/projects', { name: 'of other players' })
    const players: HonestPlayer[] = []
    for (const [i, group] of GROUPS.entries()) {
      const name = `honest-${i}`
      const url = target.wsUrls[i % target.wsUrls.length]!
      const own = group === 'project' ? { ...target, projectId: project.id! } : target
      const token = await tokenFor(own, { sub: name })
      const key = keyOf(players.filter((player) => player.group === group).length)
      const player = new HonestPlayer({ name, group, url, token, target: own, key, messages })
      await player.enter()
      players.push(player)
    }
    return new HonestPlayers(players)
  }

  /** Share of the messages that were acked in time, from 0 to 1. Messages that may still be acked in time do not count. */
  get share(): number {
    const open = this.#players.reduce((sum, player) => sum + player.open, 0)
    const { due, in_time } = counted(this.#players)
    return in_time / Math.max(1, due - open)
  }

  /** Stops sending. */
  stop(): void {
    for (const timer of this.#timers) clearInterval(timer)
  }

  /**
   * Waits for the last acks, and compares the acked messages with the final states. `from`: start of the first window of `worst`, in
   * milliseconds since 1970.
   */
  async end(from: number): Promise<Experiences> {
    const deadline = performance.now() + PATIENCE_MS
    while (this.#players.some(({ waiting }) => waiting.size > 0) && performance.now() < deadline)
      await sleep(50)
    const others = this.#players.filter(({ group }) => group !== 'message')
    const same = this.#players.filter(({ group }) => group === 'message')
    const applied = await Promise.all(others.map((player) => this.#applied(player).catch(() => undefined)))
    const lost = others.reduce((sum, player, i) => sum + player.lost(applied[i]), 0)
    const doubled = applied.reduce((sum, found) => sum + (found?.doubled ?? 0), 0)
    for (const player of this.#players) player.leave()
    return { others: experienceOf(others, from), same: experienceOf(same, from), lost, doubled }
  }

  /** Returns the applied messages of a player, as a new member sees them. */
  async #applied({ name, target, key }: HonestPlayer): Promise<Applied | undefined> {
    const { frontUrl, projectId } = target
    const client = await connect(frontUrl, { projectId, token: await tokenFor(target) })
    try {
      const room = await client.join<typeof honest>('honest', { key })
      return room.state.players[name] as Applied | undefined
    } finally {
      client.close()
    }
  }
}

function experienceOf(players: readonly HonestPlayer[], from: number): Experience {
  const acks = players.flatMap((player) => [...player.acks.values()])
  // Without an ack no limit holds.
  const ack_p99_ms = quantile(acks, 0.99, Number.POSITIVE_INFINITY)
  return { ...counted(players), worst: worstOf(players, from), ack_p99_ms }
}

function counted(players: readonly HonestPlayer[]): Pick<Experience, 'due' | 'in_time'> {
  const due = players.flatMap((player) => player.due)
  return { due: due.length, in_time: due.filter(({ inTime }) => inTime).length }
}

/** Returns the smallest share of messages in time within ten seconds that start at `from` or later. */
function worstOf(players: readonly HonestPlayer[], from: number): number {
  const due = players.flatMap((player) => player.due).sort((a, b) => a.at - b.at)
  const last = due.at(-1)?.at ?? from
  let worst = 1
  for (let start = from; start + WINDOW_MS <= last; start += STEP_MS) {
    const within = due.filter(({ at }) => at >= start && at < start + WINDOW_MS)
    worst = Math.min(worst, within.filter(({ inTime }) => inTime).length / Math.max(1, within.length))
  }
  return worst
}

const PLAYERS_PER_ROOM = 2
const keyOf = (index: number): string => `room-${Math.floor(index / PLAYERS_PER_ROOM)}`

/** Joins the room of an honest player. */
const joinRoom = (client: Client, group: Group, key: string): Promise<Room> =>
  group === 'message' ? client.join('bad', { key, fault: NO_FAULT }) : client.join('honest', { key })

interface HonestPlayerOptions {
  readonly name: string
  /** The node to which it connects first. */
  readonly url: string
  readonly token: string
  readonly target: Target
  /** The key of its room. */
  readonly key: string
  readonly group: Group
  /** Types of the messages that it sends in turn in the bad room type. */
  readonly messages: readonly string[]
}

/** A message that was due. */
interface Due {
  /** Milliseconds since 1970. */
  readonly at: number
  /** True: it was acked within 2 s. */
  inTime: boolean
}

/** An honest player. It joins again after it has lost its seat. */
class HonestPlayer {
  /** By number of the message, the time to its ack in milliseconds. */
  readonly acks = new Map<number, number>()
  readonly name: string
  readonly group: Group
  readonly target: Target
  readonly key: string
  /** By number of the message, the time at which it was sent. Only messages without an outcome. */
  readonly waiting = new Map<number, number>()
  /** All messages that were due. */
  readonly due: Due[] = []
  readonly #options: HonestPlayerOptions
  #client: Client | undefined
  #room: Room | undefined
  #sent = 0
  #left = false

  constructor(options: HonestPlayerOptions) {
    this.name = options.name
    this.group = options.group
    this.target = options.target
    this.key = options.key
    this.#options = options
  }

  /** Connects and joins the room. */
  async enter(): Promise<void> {
    const { url, token, target, group, key } = this.#options
    const { WebSocket } = networkOf(this.#client ? target.frontUrl : url, target.frontUrl)
    const { projectId } = target
    this.#client = await connect(url, {
      projectId,
      token,
      WebSocket,
      reroute: false,
      onError: () => undefined,
    })
    const room = await joinRoom(this.#client, group, key)
    room.onLeave(() => void this.#enterAgain())
    this.#room = room
  }

  /** Sends the next message. Without a seat, only counts it as due. */
  act(): void {
    const due: Due = { at: Date.now(), inTime: false }
    this.due.push(due)
    if (!this.#room) return
    const n = ++this.#sent
    const at = performance.now()
    this.waiting.set(n, at)
    const acked = (): void => {
      const ms = performance.now() - at
      this.acks.set(n, ms)
      due.inTime = ms <= IN_TIME_MS
    }
    const { group, messages } = this.#options
    const sent =
      group === 'message'
        ? this.#room.send(messages[n % messages.length]!, NO_FAULT)
        : this.#room.send('add', { n })
    void sent.then(acked, () => undefined).finally(() => this.waiting.delete(n))
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

/** The network of one SDK client. Its first connection uses `firstUrl`, all later ones use the load balancer. */
export function networkOf(firstUrl: string, frontUrl: string): Network {
  const urls = [firstUrl]
  return new Network({ to: () => ({ url: urls.pop() ?? frontUrl }) })
}
