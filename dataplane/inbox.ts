import type { Arrival, RequestMessage } from './traffic.ts'

/** Everything but messages is one for each member, or is asked again: of that a room with many members has more. */
const OTHERS_PER_MESSAGE = 10

/** Size of a request that takes one place: the default of `MAX_MESSAGE_BYTES`. */
const PLACE_BYTES = 16 * 1024

const placesOf = ({ request }: RequestMessage): number =>
  Math.ceil(JSON.stringify(request).length / PLACE_BYTES)

/** An event of the room's owner that waits among the messages. */
type OwnEvent = () => void

/**
 * The messages that wait for one room name, in order. A name has one inbox at a node: it goes from the search for the owner to the room that
 * is opened here, and on to the next owner. Bounded, since a store may be away for long while members play on: a later message of a member
 * replaces those that it makes needless, and the caller answers what has no place.
 */
export class Inbox {
  /** Edges of messages that had no place, and got no answer: they are to send them again. */
  readonly turnedAway = new Set<string>()
  readonly #mostMessages: number
  readonly #waiting = new Map<string | number, Arrival | OwnEvent>()
  #messages = 0
  #requests = 0
  #requestPlaces = 0
  #number = 0

  /**
   * `mostMessages`: how many messages of members may wait, and apart from them as many requests of backends and operators, where each 16 KiB of
   * a request count as one; of joins, attaches, resyncs and leaves together ten times as many.
   */
  constructor(mostMessages: number) {
    this.#mostMessages = mostMessages
  }

  /** False: it has no place. Who has gone always has one: that is at most one for each member, and no one would say it again. */
  add(arrival: Arrival): boolean {
    const { message, from } = arrival
    const { kind, member_id: memberId } = message
    switch (kind) {
      case 'message':
      case 'refuse':
        if (this.#messages >= this.#mostMessages) return false
        this.#messages++
        this.#waiting.set(this.#number++, arrival)
        return true
      // Edges ask again every few seconds, for as long as it takes: the last time counts.
      case 'attach':
      case 'resync':
      case 'renew':
        return this.#replace(`${kind} ${memberId}`, arrival)
      case 'request': {
        const key = `request ${memberId}`
        if (this.#waiting.has(key)) return true
        const places = this.#requestPlaces + placesOf(message)
        if (places > this.#mostMessages) return false
        this.#requests++
        this.#requestPlaces = places
        this.#waiting.set(key, arrival)
        return true
      }
      case 'join':
        return this.#keep(`join ${memberId}`, arrival)
      case 'leave':
        if (message.request_id !== undefined)
          return this.#keep(`leave ${message.request_id} ${memberId}`, arrival)
        this.#cancelJoin(memberId, from)
        this.#waiting.set(`leave ${from} ${memberId}`, arrival)
        return true
      case 'detach': {
        this.#cancelJoin(memberId, from)
        const key = `detach ${from} ${memberId}`
        this.#waiting.delete(key)
        this.#waiting.set(key, arrival)
        return true
      }
    }
  }

  /** Adds an event of the owner, of which there is only so much. */
  defer(event: OwnEvent): void {
    this.#waiting.set(this.#number++, event)
  }

  /** The messages that wait, oldest first. */
  get arrivals(): readonly Arrival[] {
    return [...this.#waiting.values()].filter((waiting) => typeof waiting !== 'function')
  }

  get empty(): boolean {
    return this.#waiting.size === 0
  }

  /** Since when the oldest message waits for its room; undefined: none does, or it is not known. */
  get since(): number | undefined {
    for (const waiting of this.#waiting.values()) if (typeof waiting !== 'function') return waiting.at
    return undefined
  }

  /** Takes the oldest of what waits. */
  shift(): Arrival | OwnEvent | undefined {
    for (const [key, waiting] of this.#waiting) {
      this.#delete(key, waiting)
      return waiting
    }
    return undefined
  }

  /** Takes the messages for which `chosen` returns true, asked in their order. */
  remove(chosen: (arrival: Arrival) => boolean): readonly Arrival[] {
    const removed: Arrival[] = []
    for (const [key, waiting] of this.#waiting) {
      if (typeof waiting === 'function' || !chosen(waiting)) continue
      this.#delete(key, waiting)
      removed.push(waiting)
    }
    return removed
  }

  /** Takes all messages, oldest first. */
  take(): readonly Arrival[] {
    return this.remove(() => true)
  }

  /** Drops the events of an owner that has ended. */
  dropEvents(): void {
    for (const [key, waiting] of this.#waiting) if (typeof waiting === 'function') this.#waiting.delete(key)
  }

  #delete(key: string | number, waiting: Arrival | OwnEvent): void {
    this.#waiting.delete(key)
    if (typeof waiting === 'function') return
    const { message } = waiting
    if (message.kind === 'message' || message.kind === 'refuse') this.#messages--
    else if (message.kind === 'request') {
      this.#requests--
      this.#requestPlaces -= placesOf(message)
    }
  }

  #replace(key: string, arrival: Arrival): boolean {
    if (!this.#waiting.delete(key) && this.#full) return false
    this.#waiting.set(key, arrival)
    return true
  }

  /**
   * Drops the waiting join of a client that is gone from the edge `from`. A client that comes back sends the join again, perhaps to another edge. The
   * seat of that join may have ended before this one is handled.
   */
  #cancelJoin(memberId: string, from: string): void {
    const key = `join ${memberId}`
    const join = this.#waiting.get(key)
    if (typeof join === 'object' && join.from === from) this.#waiting.delete(key)
  }

  /** One that was said before keeps its place, and with it what came before and after. */
  #keep(key: string, arrival: Arrival): boolean {
    if (!this.#waiting.has(key) && this.#full) return false
    this.#waiting.set(key, arrival)
    return true
  }

  get #full(): boolean {
    return this.#waiting.size - this.#messages - this.#requests >= OTHERS_PER_MESSAGE * this.#mostMessages
  }
}
