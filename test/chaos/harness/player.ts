import type { Duplex } from 'node:stream'
import type { Clock } from '../../../shared/clock.ts'
import type { ClientRecord, End } from '../checker/history.ts'
import { ACTS, type Act, type Refusal } from '../room-logic.ts'

/** A node that clients may try. */
export interface Door {
  readonly node: string
  readonly url: string
}

/** `Omit` for each member of a union. */
/** `Omit` of each member of a union. */
export type Without<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never

/** What a client writes down; who and when are added. */
export type Note = Without<ClientRecord, 'at' | 'client'>

/** What every player needs. */
export interface PlayerParts extends ClientParts {
  readonly room_type: string
  readonly key: string
  readonly note: (note: Note) => void
  /** Whether it goes to the node of its room when it is told to. */
  readonly reroutes: boolean
}

/** What any client of a run is given. */
export interface ClientParts {
  readonly name: string
  readonly project_id: string
  readonly token: string
  /** The nodes there are at this moment. */
  readonly doors: () => readonly Door[]
  /** A number in [0, 1). */
  readonly random: () => number
  readonly clock: Clock
  /** Opens a connection to a node. Undefined: over the network, to the address of the door. */
  readonly dial: ((door: Door) => Duplex) | undefined
}

/** Someone who plays in one room for the whole run, whatever happens to its connections and sessions. */
export abstract class Player {
  readonly name: string
  protected readonly parts: PlayerParts
  protected closed = false
  readonly #ops: Ops
  #resting = false

  constructor(parts: PlayerParts) {
    this.name = parts.name
    this.parts = parts
    this.#ops = new Ops(parts.name, parts.random)
  }

  start(): void {
    this.connect()
    this.#playOn()
  }

  /** Sends nothing new any more. */
  rest(): void {
    this.#resting = true
  }

  /** One last op. */
  last(): void {
    this.send({ ...this.#ops.good(), act: null })
  }

  close(): void {
    this.closed = true
  }

  /** Whether the player is in its room and all it sent is settled. */
  abstract get settled(): boolean
  /** The connection breaks, as networks do. */
  abstract cut(): void
  /** Takes its session up twice at once, at two nodes, with one token. */
  abstract race(): void
  /** Where it stands; undefined while it is in no room. */
  abstract stand(): End['members'][number] | undefined
  /** Why it is not settled, for people. */
  abstract describe(): string

  /** Whether it is where it may send an op, with no more than `MOST_WAITING` unsettled. */
  protected abstract get ready(): boolean
  protected abstract connect(): void
  protected abstract send(op: NewOp): void
  /** The connection breaks `DEAF_MS` from now, and nothing comes back on it until then. */
  protected abstract deafen(): void

  /** Where the server sends it. */
  protected rerouting(url: string): Door {
    const { doors, note } = this.parts
    const door = doors().find((each) => each.url === url) ?? { node: 'none', url }
    note({ kind: 'rerouting', node: door.node })
    return door
  }

  /** May cut one of the two connections of a change-over, at any of its steps. */
  protected disturb(before: Cuttable | undefined, next: Cuttable): void {
    const { random, clock } = this.parts
    const [draw, afterMs] = [random(), random() * CHANGE_OVER_MS]
    if (draw < 0.5) clock.schedule(afterMs, () => (draw < 0.3 ? next : before)?.terminate())
  }

  #playOn(): void {
    this.parts.clock.schedule(this.#ops.pause(), () => {
      if (this.closed) return
      if (!this.#resting && this.ready) {
        const { ops, lost } = this.#ops.next()
        for (const op of ops) this.send(op)
        if (lost) this.deafen()
      }
      this.#playOn()
    })
  }
}

/** A connection. */
interface Cuttable {
  terminate(): void
}

/** Longer than it takes a client to go to another node, unless something is slow. */
const CHANGE_OVER_MS = 50

/** How many ops may wait for their ack. */
export const MOST_WAITING = 8
/** One op in so many does something besides, and one in so many is a request. */
const ACT_ONE_IN = 1.5
const ASK_ONE_IN = 3
/** One op in so many is one that the room must refuse. */
const REFUSED_ONE_IN = 12
/** One time in so many a client sends a burst of such ops, and loses its connection before it can know what became of them. */
const BURST_ONE_IN = 150
/** More than a server may be tempted to remember. */
const BURST = 48
/** How long a connection that is about to break still carries what the client sends, while nothing comes back. */
export const DEAF_MS = 50

/** An op that a client is to send. */
export interface NewOp {
  readonly op: string
  readonly refuse: Refusal | null
  readonly act: Act | null
  /** It is to be answered. */
  readonly ask: boolean
}

/** The ops of one client: each with a name of its own. */
class Ops {
  readonly #name: string
  readonly #random: () => number
  #count = 0

  constructor(name: string, random: () => number) {
    this.#name = name
    this.#random = random
  }

  /** One that the room applies. */
  good(): NewOp {
    return this.#op(null)
  }

  /** What to send now. `lost`: the connection breaks before any answer. */
  next(): { ops: NewOp[]; lost: boolean } {
    if (this.#one(BURST_ONE_IN)) return { ops: Array.from({ length: BURST }, () => this.#bad()), lost: true }
    return { ops: [this.#one(REFUSED_ONE_IN) ? this.#bad() : this.good()], lost: false }
  }

  #bad(): NewOp {
    return this.#op(this.#one(3) ? 'room_logic_failed' : 'room_logic_refused')
  }

  #op(refuse: Refusal | null): NewOp {
    this.#count += 1
    const act = this.#one(ACT_ONE_IN) ? ACTS[Math.floor(this.#random() * ACTS.length)]! : null
    return { op: `${this.#name}/${this.#count}`, refuse, act, ask: this.#one(ASK_ONE_IN) }
  }

  #one(of: number): boolean {
    return this.#random() * of < 1
  }

  /** When the next one is due, in milliseconds. */
  pause(): number {
    return 60 + this.#random() * 240
  }
}
