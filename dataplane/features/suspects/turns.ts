import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads'
import { HOOKS, plainTurn, type Turn, type TurnObserver } from '../../room/hooks.ts'

// One buffer: 32-bit words (an even number, because doubles are aligned), then doubles, then five texts at fixed offsets.
const WORDS = 12
const SEQUENCE = 0
const HOOK = 1
/** Five words: the length of each text. */
const LENGTHS = 2
const DEBUGGED = 7
const BEATS = 8
const GUARDED = 9
const ENDING = 10
const DOUBLES = 2
const EPOCH = 0
const REF = 1
const ROOM = 0
const SUBJECT = 1
const TYPE = 2
const PRINCIPAL = 3
const OPEN = 4
/** Room (a project's id, 64 characters of type, 128 of key), subject, message type, principal, the open turn as JSON. Longer texts are cut. */
const TEXTS = [640, 96, 64, 256, 1280] as const
const DOUBLES_AT = WORDS * 4
const TEXTS_AT = DOUBLES_AT + DOUBLES * 8
const BYTES = TEXTS_AT + TEXTS.reduce((sum, length) => sum + length, 0)

/** Place in the code at which a long turn was found. */
export interface Place {
  readonly room: string
  readonly hook: string
  readonly frame: string
}

/** Creates the memory through which one thread shows another its current turn. */
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

/** Writer for the thread that runs the rooms. Writes each turn before it starts, without an allocation. */
export class TurnWriter implements TurnObserver {
  /** Port of the watching thread, with a Place for each turn that took long. */
  places: MessagePort | undefined
  readonly #layout: Layout
  readonly #encoder = new TextEncoder()
  /** Room code may not call it, and the process may end in its context. */
  readonly #wait = Atomics.wait
  #depth = 0
  /** Odd during a turn. */
  #sequence = 0
  #lastRoom = ''
  #lastPrincipal = ''

  constructor(buffer: SharedArrayBuffer) {
    this.#layout = new Layout(buffer)
  }

  placeOf({ room, hook }: Turn): string | undefined {
    let found: string | undefined
    for (;;) {
      const next = this.places && receiveMessageOnPort(this.places)
      if (!next) return found
      const place = next.message as Place
      if (place.room === room.name && place.hook === hook) found = place.frame
    }
  }

  begin({ room, hook, subject, ref, type, principal }: Turn, guarded: boolean): void {
    if (this.#depth++ > 0) return
    const { words, doubles } = this.#layout
    words[HOOK] = HOOKS.indexOf(hook)
    words[GUARDED] = guarded ? 1 : 0
    doubles[EPOCH] = room.epoch
    doubles[REF] = ref
    if (room.name !== this.#lastRoom) {
      this.#lastRoom = room.name
      this.#write(ROOM, room.name)
    }
    if (principal !== this.#lastPrincipal) {
      this.#lastPrincipal = principal
      this.#write(PRINCIPAL, principal)
    }
    this.#write(SUBJECT, subject)
    this.#write(TYPE, type)
    this.#next()
  }

  end(): void {
    if (--this.#depth === 0) this.#next()
  }

  open(turn: Turn | undefined): void {
    this.#write(OPEN, turn === undefined ? '' : JSON.stringify(plainTurn(turn)))
  }

  /** Shows that the event loop runs. To be called at a steady rate. */
  beat(): void {
    Atomics.add(this.#layout.words, BEATS, 1)
  }

  /** The process is about to end: waits until the other thread has noted the reason, at most `timeoutMs`. */
  lastWords(timeoutMs: number): void {
    const { words } = this.#layout
    Atomics.store(words, ENDING, 1)
    this.#wait(words, ENDING, 1, timeoutMs)
  }

  /** True while a debugger is attached: a turn may then take any time. */
  set debugged(debugged: boolean) {
    Atomics.store(this.#layout.words, DEBUGGED, debugged ? 1 : 0)
  }

  #write(text: number, value: string): void {
    const { words, texts } = this.#layout
    words[LENGTHS + text] = this.#copy(value, texts[text]!)
  }

  /** Copies a text as UTF-8. Nearly all texts are short and ASCII, for which the encoder costs three times as much. */
  #copy(value: string, into: Uint8Array): number {
    const length = Math.min(value.length, into.length)
    for (let i = 0; i < length; i++) {
      const unit = value.charCodeAt(i)
      if (unit > 127) return this.#encoder.encodeInto(value, into).written
      into[i] = unit
    }
    return length
  }

  /** Makes all earlier writes visible to the other thread. */
  #next(): void {
    this.#sequence = (this.#sequence + 1) | 0
    Atomics.store(this.#layout.words, SEQUENCE, this.#sequence)
  }
}

/** Reader for the thread that watches. */
export class TurnReader {
  readonly #layout: Layout

  constructor(buffer: SharedArrayBuffer) {
    this.#layout = new Layout(buffer)
  }

  /** Number that identifies the running turn. Undefined: no turn runs, or a debugger may have stopped it. */
  get running(): number | undefined {
    const { words } = this.#layout
    const sequence = Atomics.load(words, SEQUENCE)
    return (sequence & 1) === 1 && Atomics.load(words, DEBUGGED) === 0 ? sequence : undefined
  }

  /** Number that changes when a turn starts or ends. Undefined: a debugger may have stopped it. */
  get sequence(): number | undefined {
    const { words } = this.#layout
    return Atomics.load(words, DEBUGGED) === 0 ? Atomics.load(words, SEQUENCE) : undefined
  }

  /** True after `lastWords`: the process is about to end. */
  get ending(): boolean {
    return Atomics.load(this.#layout.words, ENDING) === 1
  }

  /** Lets the other thread end. */
  release(): void {
    Atomics.store(this.#layout.words, ENDING, 2)
    Atomics.notify(this.#layout.words, ENDING)
  }

  /** The running turn, or the latest one. Valid only if `running` is the same before and after. */
  get turn(): Turn & { readonly guarded: boolean } {
    const { words, doubles } = this.#layout
    return {
      room: { name: this.#read(ROOM), epoch: doubles[EPOCH]! },
      hook: HOOKS[words[HOOK]!]!,
      subject: this.#read(SUBJECT),
      ref: doubles[REF]!,
      type: this.#read(TYPE),
      principal: this.#read(PRINCIPAL),
      guarded: words[GUARDED] === 1,
    }
  }

  /** Number that changes while the event loop runs. Undefined: a debugger may have stopped it. */
  get beats(): number | undefined {
    const { words } = this.#layout
    return Atomics.load(words, DEBUGGED) === 0 ? Atomics.load(words, BEATS) : undefined
  }

  /** The asynchronous call that started last and has not finished. To be read while the event loop is blocked. */
  get open(): Turn | undefined {
    try {
      return JSON.parse(this.#read(OPEN)) as Turn
    } catch {
      return undefined // There is none, or it was too long.
    }
  }

  #read(text: number): string {
    const { words, texts } = this.#layout
    return new TextDecoder().decode(texts[text]!.slice(0, words[LENGTHS + text]))
  }
}

/**
 * Measures how long a number stays the same, such as that of a turn, or of the beats of an event loop. It adds up the calls of `tick` instead of
 * elapsed time: in a suspended process, or on a machine that sleeps, no turn runs.
 */
export class StandstillMeter {
  #last: number | undefined
  #ms = 0

  /**
   * `current`: undefined if nothing is to be measured now. `ms`: time since the previous tick. Returns the time without a change (`ms`), and
   * whether it has reached a limit with this tick (`reaches`), or with this or an earlier one (`exceeds`).
   */
  tick(current: number | undefined, ms: number) {
    const same = current !== undefined && current === this.#last
    this.#last = current
    const before = same ? this.#ms : 0
    this.#ms = same ? before + ms : 0
    const now = this.#ms
    return {
      ms: now,
      reaches: (limitMs: number): boolean => before < limitMs && now >= limitMs,
      exceeds: (limitMs: number): boolean => now >= limitMs,
    }
  }
}

/**
 * Returns the milliseconds that a tick counts. On a busy machine a turn takes longer than its CPU time, so the CPU time counts. A turn that blocks
 * uses no CPU time: therefore at least `idleShare` of the tick counts.
 */
export const countedMs = (tickMs: number, cpuMs: number, idleShare: number): number =>
  Math.min(tickMs, Math.max(cpuMs, idleShare * tickMs))
