import type { Json } from '../shared/json.ts'
import { MAX } from '../shared/protocol/messages.ts'
import { RoomfulError } from './errors.ts'
import type { Encoded } from './session.ts'
import type { KeptMessage, TabSession } from './tab.ts'

/** A message that is kept until the server has acknowledged or refused it. */
export interface ReliableMessage {
  readonly ref: number
  readonly payload: Encoded
}

/** Limits of unacknowledged messages. */
export interface UnackedLimits {
  readonly messages: number
  readonly bytes: number
}

interface Entry extends ReliableMessage {
  /** True if the caller waits for a reply. */
  readonly request: boolean
  reply: Json | undefined
  readonly resolve: (reply: Json | undefined) => void
  readonly reject: (error: RoomfulError) => void
}

/** Reliable messages of one seat without an outcome. Their refs are contiguous, because outcomes arrive in the order of the refs. */
export class Unacked {
  readonly #limits: UnackedLimits
  readonly #roomId: string
  readonly #tab: Pick<TabSession, 'keep' | 'drop' | 'restart'> | undefined
  #entries: Entry[] = []
  #bytes = 0
  #lastRef = 0

  /** `tab` stores them across a reload of the page. */
  constructor(limits: UnackedLimits, roomId: string, tab?: Pick<TabSession, 'keep' | 'drop' | 'restart'>) {
    this.#limits = limits
    this.#roomId = roomId
    this.#tab = tab
  }

  /** Ref of the next message. */
  get nextRef(): number {
    return this.#lastRef + 1
  }

  /** Highest ref up to which all outcomes are known. */
  get settled(): number {
    const [oldest] = this.#entries
    return oldest ? oldest.ref - 1 : this.#lastRef
  }

  /**
   * Keeps a message. The promise resolves with the reply, if any, when the message is acknowledged, and rejects with the reason if it was not
   * applied. Throws a RoomfulError (queue_full, too_many_requests or storage_full) if a limit is reached.
   */
  add(payload: Encoded, kept: KeptMessage, request: boolean): Promise<Json | undefined> {
    const { messages, bytes } = this.#limits
    if (request && this.#entries.filter((entry) => entry.request).length >= MAX.requests)
      throw new RoomfulError('too_many_requests', `${MAX.requests} requests already wait for their reply.`, {
        retryable: true,
      })
    const { length } = payload
    if (this.#entries.length >= messages) throw full(`${messages} messages`, 'maxUnacked')
    if (this.#entries.length > 0 && this.#bytes + length > bytes)
      throw full(`${this.#bytes} of ${bytes} bytes`, 'maxUnackedBytes')
    this.#tab?.keep(kept)
    return new Promise((resolve, reject) => {
      this.#push({ ref: kept.ref, payload, request, reply: undefined, resolve, reject })
    })
  }

  /** Adds a message of an earlier page, whose promise is gone. `refused` receives the reason if it is not applied. */
  restore(message: ReliableMessage, refused: (error: RoomfulError) => void): void {
    this.#push({ ...message, request: false, reply: undefined, resolve: () => {}, reject: refused })
  }

  /** An earlier page has sent messages up to this ref. */
  continueAfter(ref: number): void {
    this.#lastRef = Math.max(ref, this.#lastRef)
  }

  /** All messages up to `ref` are applied. */
  ack(ref: number): void {
    for (const entry of this.#take((entry) => entry.ref <= ref)) {
      if (entry.request && entry.reply === undefined) entry.reject(unanswered())
      else entry.resolve(entry.reply)
    }
  }

  /** Stores the reply to a message. Its ack follows. */
  reply(ref: number, reply: Json): void {
    const entry = this.#entries.find((known) => known.ref === ref)
    if (entry) entry.reply = reply
  }

  /** Rejects a refused message. Returns false for an unknown ref. */
  refuse(ref: number, error: RoomfulError): boolean {
    const [refused] = this.#take((entry) => entry.ref === ref)
    refused?.reject(error)
    return refused !== undefined
  }

  /** The seat is gone. Rejects all messages: they are lost, or their outcome is unknown. The next seat starts with ref 1. */
  restart(error: RoomfulError): void {
    for (const entry of this.#take(() => true)) entry.reject(error)
    this.#lastRef = 0
    this.#tab?.restart(this.#roomId)
  }

  /** Messages without an outcome, oldest first. */
  get messages(): readonly ReliableMessage[] {
    return this.#entries
  }

  #push(entry: Entry): void {
    this.#entries.push(entry)
    this.#bytes += entry.payload.length
    this.#lastRef = entry.ref
  }

  #take(settled: (entry: Entry) => boolean): Entry[] {
    const taken: Entry[] = []
    const left: Entry[] = []
    for (const entry of this.#entries) (settled(entry) ? taken : left).push(entry)
    this.#entries = left
    for (const { ref, payload } of taken) {
      this.#bytes -= payload.length
      this.#tab?.drop(this.#roomId, ref)
    }
    return taken
  }
}

const unanswered = (): RoomfulError =>
  new RoomfulError('no_reply', 'The message was applied, but its type has no reply.')

const full = (what: string, option: string): RoomfulError =>
  new RoomfulError('queue_full', `${what} already wait for their ack (${option}).`, {
    retryable: true,
  })
