import type { Duplex } from 'node:stream'
import type { Clock } from '../../shared/clock.ts'
import type { ClientRecord, End, Without } from '../chaos/checker/history.ts'
import { ACTS, type Act, type Refusal } from '../chaos/rooms.ts'

/** Address of a node for clients. */
export interface Door {
  readonly node: string
  readonly url: string
}

/** Record of a client, before its name and the time are added. */
export type Note = Without<ClientRecord, 'at' | 'client'>

/** Dependencies of a player. */
export interface PlayerParts extends ClientParts {
  readonly roomType: string
  readonly key: string
  readonly note: (note: Note) => void
  /** True: follows a `move` to the node of its room. */
  readonly reroutes: boolean
  /** True: joins as a spectator, and lists a position from before its join in some resumes. Only for `RawPlayer`. */
  readonly watches: boolean
}

/** Dependencies of all kinds of clients. */
export interface ClientParts {
  readonly name: string
  readonly projectId: string
  readonly token: string
  /** Returns the running nodes. */
  readonly doors: () => readonly Door[]
  /** Returns a number in [0, 1). */
  readonly random: () => number
  readonly clock: Clock
  /** Opens a connection to a node. Undefined: connects to the node's address over the network. */
  readonly dial: ((door: Door) => Duplex) | undefined
}

/** A player who stays in one room for the whole run. After the loss of a connection, session or seat it comes back. */
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

  /** Stops sending new ops. */
  rest(): void {
    this.#resting = true
  }

  /** Sends one last op. */
  last(): void {
    this.send({ ...this.#ops.good(), act: null })
  }

  close(): void {
    this.closed = true
  }

  /** True while the player is in its room and every op has its ack or refusal. */
  abstract get answered(): boolean
  /** Breaks the connection without a closing handshake. */
  abstract cut(): void
  /** Resumes its session at two nodes at the same time, with one token. */
  abstract race(): void
  /** Room, member and state of the player. Undefined: it is in no room. */
  abstract position(): End['members'][number] | undefined
  /** Returns the player's connection, seat and unanswered ops as text. */
  abstract describe(): string

  /** True while the player is in its room and fewer than `MOST_WAITING` ops are unanswered. */
  protected abstract get ready(): boolean
  protected abstract connect(): void
  protected abstract send(op: NewOp): void
  /** Drops all incoming messages, and breaks the connection after `DEAF_MS`. */
  protected abstract deafen(): void

  /** Returns the node at a URL of a `move`, and records it. */
  protected rerouting(url: string): Door {
    const { doors, note } = this.parts
    const door = doors().find((each) => each.url === url) ?? { node: 'none', url }
    note({ kind: 'rerouting', node: door.node })
    return door
  }

  /** In half of all change-overs, cuts one of the two connections at a random moment. */
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

/** Longer than a change-over takes without other faults. */
const CHANGE_OVER_MS = 50

/** Largest number of ops without an answer. */
export const MOST_WAITING = 8
/** Two of three ops have an act, and one of three is a request. */
const ACT_ONE_IN = 1.5
const ASK_ONE_IN = 3
/** One of this many ops asks the room to refuse it. */
const REFUSED_ONE_IN = 12
/** One of this many times, the client sends a burst of refused ops and loses its connection before their answers. */
const BURST_ONE_IN = 150
/** Number of ops in a burst: more than a server with a limited list of refusals would keep. */
const BURST = 48
/** Time in which a connection carries only messages of the client, before it breaks. */
export const DEAF_MS = 50

/** An op to send. */
export interface NewOp {
  readonly op: string
  readonly refuse: Refusal | null
  readonly act: Act | null
  /** True: the op is a request with a reply. */
  readonly ask: boolean
}

/** Generates the ops of one client. Each has a different name. */
class Ops {
  readonly #name: string
  readonly #random: () => number
  #count = 0

  constructor(name: string, random: () => number) {
    this.#name = name
    this.#random = random
  }

  /** Returns an op that the room applies. */
  good(): NewOp {
    return this.#op(null)
  }

  /** Returns the ops to send now. `lost`: the connection breaks before any answer. */
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

  /** Returns the time until the next op, in ms. */
  pause(): number {
    return 60 + this.#random() * 240
  }
}
