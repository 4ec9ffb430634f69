import { RoomfulError } from './errors.ts'
import type { Encoded } from './session.ts'

/** A message that is kept until the server has settled it. */
export interface ReliableMessage {
  readonly ref: number
  readonly payload: Encoded
}

/** How much may wait to be settled. */
export interface UnackedLimits {
  readonly messages: number
  readonly bytes: number
}

interface Entry extends ReliableMessage {
  readonly resolve: () => void
  readonly reject: (error: RoomfulError) => void
}

/** Reliable messages of one member that are not settled yet, in the order of their refs. */
export class Unacked {
  readonly #limits: UnackedLimits
  #entries: Entry[] = []
  #bytes = 0
  #lastRef = 0

  constructor(limits: UnackedLimits) {
    this.#limits = limits
  }

  /** The highest ref up to which every outcome is known. */
  get settled(): number {
    const [oldest] = this.#entries
    return oldest ? oldest.ref - 1 : this.#lastRef
  }

  /**
   * Keeps a message; the promise resolves when it is acked, and rejects with why it was not applied. Throws a RoomfulError (queue_full)
   * when no more can be kept.
   */
  add(message: ReliableMessage): Promise<void> {
    const { messages, bytes } = this.#limits
    const { length } = message.payload
    if (this.#entries.length >= messages) throw full(`${messages} reliable messages`, 'maxUnacked')
    if (this.#entries.length > 0 && this.#bytes + length > bytes)
      throw full(`${this.#bytes} of ${bytes} bytes of reliable messages`, 'maxUnackedBytes')
    this.#bytes += length
    this.#lastRef = message.ref
    return new Promise((resolve, reject) => {
      this.#entries.push({ ...message, resolve, reject })
    })
  }

  /** Everything up to `ref` is applied. */
  ack(ref: number): void {
    for (const entry of this.#take((entry) => entry.ref <= ref)) entry.resolve()
  }

  /** One message was refused. False when it is none of these. */
  refuse(ref: number, error: RoomfulError): boolean {
    const [refused] = this.#take((entry) => entry.ref === ref)
    refused?.reject(error)
    return refused !== undefined
  }

  /** None of these will be applied, or no one will know. */
  refuseAll(error: RoomfulError): void {
    for (const entry of this.#take(() => true)) entry.reject(error)
  }

  /** What is not settled, oldest first. */
  get messages(): readonly ReliableMessage[] {
    return this.#entries
  }

  #take(settled: (entry: Entry) => boolean): Entry[] {
    const taken: Entry[] = []
    const left: Entry[] = []
    for (const entry of this.#entries) (settled(entry) ? taken : left).push(entry)
    this.#entries = left
    for (const { payload } of taken) this.#bytes -= payload.length
    return taken
  }
}

const full = (what: string, option: string): RoomfulError =>
  new RoomfulError('queue_full', `${what} wait for their ack already (option ${option}).`, {
    retryable: true,
  })
