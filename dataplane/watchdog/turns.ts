/** The code of a room type that runs as a turn, or for one. */
export const HOOKS = [
  'create',
  'load',
  'save',
  'migrate',
  'options',
  'admit',
  'onJoin',
  'onMessage',
  'onDisconnect',
  'onReconnect',
  'onLeave',
  'onTick',
  'onTimer',
  'onTask',
  'onDispose',
] as const
export type TurnHook = (typeof HOOKS)[number]

/** The room whose code runs. */
export interface TurnRoom {
  /** `project/type:key`. */
  readonly name: string
  readonly epoch: number
}

/** What a turn is about, as far as the room's next owner has to know. */
export interface TurnCause {
  readonly hook: TurnHook
  /** The member; of a join, the session; empty: none. */
  readonly subject: string
  /** Of the message, or of the join; 0: none. */
  readonly ref: number
  /** Of the message; empty: none. */
  readonly type: string
}

/** A turn that does not end. */
export interface StuckTurn extends TurnCause {
  readonly room: TurnRoom
}

/** A stuck turn as the room's record keeps it for the next owner. */
export const encodeNote = ({ hook, subject, ref, type }: TurnCause): Uint8Array =>
  new TextEncoder().encode(JSON.stringify({ hook, subject, ref, type }))

/** Undefined: not one that this version has written. */
export function decodeNote(bytes: Uint8Array): TurnCause | undefined {
  try {
    const { hook, subject, ref, type } = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
    const sound =
      HOOKS.includes(hook) &&
      typeof subject === 'string' &&
      typeof type === 'string' &&
      Number.isSafeInteger(ref)
    return sound ? { hook, subject, ref, type } : undefined
  } catch {
    return undefined
  }
}

/** Hears of every turn. On the hot path. */
export interface Turns {
  /** Code of `room` begins to run. What begins before the `end` of another turn is part of that one. */
  begin(room: TurnRoom, hook: TurnHook, subject: string, ref: number, type: string): void
  end(): void
  /** Code of a room of this type goes on by itself later, after an `await` (1), or has ended (-1). */
  awaits(roomType: string, change: 1 | -1): void
}

/** Where no one watches. */
export const noTurns: Turns = { begin() {}, end() {}, awaits() {} }

// One buffer: 32-bit words, then doubles, then four texts of fixed places.
const WORDS = 8
const SEQUENCE = 0
const HOOK = 1
/** Four: how long each text is. */
const LENGTHS = 2
const DEBUGGED = 6
const BEATS = 7
const DOUBLES = 2
const EPOCH = 0
const REF = 1
/** Room (a project's id, 64 characters of type, 128 of key), subject, message type, room types that await. What does not fit is cut. */
const TEXTS = [640, 96, 64, 256] as const
const DOUBLES_AT = WORDS * 4
const TEXTS_AT = DOUBLES_AT + DOUBLES * 8
const BYTES = TEXTS_AT + TEXTS.reduce((sum, length) => sum + length, 0)

/** Memory that two threads share, to tell one which turn the other is in. */
export const sharedTurn = (): SharedArrayBuffer => new SharedArrayBuffer(BYTES)

class Layout {
  readonly words: Int32Array
  readonly doubles: Float64Array
  readonly texts: readonly Uint8Array[]

  constructor(buffer: SharedArrayBuffer) {
    this.words = new Int32Array(buffer, 0, WORDS)
    this.doubles = new Float64Array(buffer, DOUBLES_AT, DOUBLES)
    let at = TEXTS_AT
    this.texts = TEXTS.map((length) => {
      const text = new Uint8Array(buffer, at, length)
      at += length
      return text
    })
  }
}

/** The side of the thread that runs the rooms: writes down each turn before it begins, without allocating anything. */
export class TurnWriter implements Turns {
  readonly #layout: Layout
  readonly #encoder = new TextEncoder()
  #depth = 0
  /** Odd during a turn. */
  #sequence = 0
  #lastRoom = ''
  /** How many awaits of each room type are open. */
  readonly #awaits = new Map<string, number>()

  constructor(buffer: SharedArrayBuffer) {
    this.#layout = new Layout(buffer)
  }

  begin(room: TurnRoom, hook: TurnHook, subject: string, ref: number, type: string): void {
    if (this.#depth++ > 0) return
    const { words, doubles } = this.#layout
    words[HOOK] = HOOKS.indexOf(hook)
    doubles[EPOCH] = room.epoch
    doubles[REF] = ref
    if (room.name !== this.#lastRoom) {
      this.#lastRoom = room.name
      this.#write(0, room.name)
    }
    this.#write(1, subject)
    this.#write(2, type)
    this.#next()
  }

  end(): void {
    if (--this.#depth === 0) this.#next()
  }

  awaits(roomType: string, change: 1 | -1): void {
    const open = (this.#awaits.get(roomType) ?? 0) + change
    if (open > 0) this.#awaits.set(roomType, open)
    else this.#awaits.delete(roomType)
    // Only the first and the last of a type change what is told.
    if (open === 0 || (open === 1 && change === 1)) this.#write(3, [...this.#awaits.keys()].join(', '))
  }

  /** To be called now and then: the event loop goes on. */
  beat(): void {
    Atomics.add(this.#layout.words, BEATS, 1)
  }

  /** While a debugger is attached a turn may take as long as it likes. */
  set debugged(debugged: boolean) {
    Atomics.store(this.#layout.words, DEBUGGED, debugged ? 1 : 0)
  }

  #write(text: number, value: string): void {
    const { words, texts } = this.#layout
    words[LENGTHS + text] = this.#copy(value, texts[text]!)
  }

  /** UTF-8. Nearly all are short and ASCII, for which the encoder costs three times as much. */
  #copy(value: string, into: Uint8Array): number {
    const length = Math.min(value.length, into.length)
    for (let i = 0; i < length; i++) {
      const unit = value.charCodeAt(i)
      if (unit > 127) return this.#encoder.encodeInto(value, into).written
      into[i] = unit
    }
    return length
  }

  /** Makes all that was written before visible to the other thread. */
  #next(): void {
    this.#sequence = (this.#sequence + 1) | 0
    Atomics.store(this.#layout.words, SEQUENCE, this.#sequence)
  }
}

/** The side of the thread that watches. */
export class TurnReader {
  readonly #layout: Layout

  constructor(buffer: SharedArrayBuffer) {
    this.#layout = new Layout(buffer)
  }

  /** A number that no other turn of these days has; undefined: there is no turn, or a debugger may have stopped it. */
  get running(): number | undefined {
    const { words } = this.#layout
    const sequence = Atomics.load(words, SEQUENCE)
    return (sequence & 1) === 1 && Atomics.load(words, DEBUGGED) === 0 ? sequence : undefined
  }

  /** The turn that is running, which must be the same before and after. */
  get turn(): StuckTurn {
    const { words, doubles } = this.#layout
    return {
      room: { name: this.#read(0), epoch: doubles[EPOCH]! },
      hook: HOOKS[words[HOOK]!]!,
      subject: this.#read(1),
      ref: doubles[REF]!,
      type: this.#read(2),
    }
  }

  /** Changes for as long as the event loop goes on; undefined: a debugger may have stopped it. */
  get beats(): number | undefined {
    const { words } = this.#layout
    return Atomics.load(words, DEBUGGED) === 0 ? Atomics.load(words, BEATS) : undefined
  }

  /** The room types whose code may go on after an `await`; to be read while the event loop stands still. */
  get awaiting(): string {
    return this.#read(3)
  }

  #read(text: number): string {
    const { words, texts } = this.#layout
    return new TextDecoder().decode(texts[text]!.slice(0, words[LENGTHS + text]))
  }
}

/**
 * Finds a number that stays the same for too long: that of a turn, or of the beats of an event loop. Counts the calls of `tick` that it
 * outlasts, and not the time between them: a process that was stopped, or a machine that slept, has not looped.
 */
export class StandstillDetector {
  /** How many ticks it may take. */
  readonly #limit: number
  #last: number | undefined
  #ticks = 0

  constructor(limitMs: number, tickMs: number) {
    this.#limit = Math.ceil(limitMs / tickMs)
  }

  /** To be called every `tickMs`; undefined: nothing can stand still now. True once: it has been this number for `limitMs`. */
  tick(current: number | undefined): boolean {
    const same = current !== undefined && current === this.#last
    this.#last = current
    this.#ticks = same ? this.#ticks + 1 : 0
    return this.#ticks === this.#limit
  }
}
