import type { Arrival, RequestMessage } from './traffic.ts'

/** Capacity for joins, attaches, resyncs and leaves, as a multiple of that for messages. A large room has many of them, but few per member. */
const OTHERS_PER_MESSAGE = 10

/** Size of a request that counts as one: the default of `MAX_MESSAGE_BYTES`. */
const PLACE_BYTES = 16 * 1024

const placesOf = ({ request }: RequestMessage): number =>
  Math.ceil(JSON.stringify(request).length / PLACE_BYTES)

/** Minimum time between two refusals of a member's messages without a ref, in milliseconds. */
const REFUSAL_MS = 1000

/** An event of the room's owner, queued in order with the messages. */
type OwnEvent = () => void

/**
 * Queue of messages for one room name, in order. A node has at most one inbox for a name. It waits for the search for the owner, then for the
 * room that opens here, or it goes to the next owner. It is bounded, because the store may be unavailable for long while members play. A later
 * message of a member replaces earlier ones that it makes obsolete. The caller answers messages that do not fit.
 */
export class Inbox {
  /** Edges whose messages did not fit and got no answer. They must send them again. */
  readonly turnedAway = new Set<string>()
  readonly #mostMessages: number
  /** Times of the latest refusals, by member, oldest first. */
  readonly #refused = new Map<string, number>()
  #waiting = new Map<string | number, Arrival | OwnEvent>()
  #messages = 0
  #requests = 0
  #requestPlaces = 0
  #number = 0

  /**
   * `mostMessages`: maximum number of queued messages of members. The same number applies to requests of backends and operators, where each 16 KiB of
   * a request count as one. Joins, attaches, resyncs and leaves together may be ten times as many.
   */
  constructor(mostMessages: number) {
    this.#mostMessages = mostMessages
  }

  /**
   * Adds a message. Returns false if it does not fit. A detach, or a leave without request id, always fits: there is at most one of each per
   * member, and no edge repeats it.
   */
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
      // Edges repeat these every few seconds. The latest one replaces the earlier one, and goes to the end.
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

  /** Returns true at most once a second for each member: its client gets a refusal of a message that did not fit. */
  mayRefuse(memberId: string, now: number): boolean {
    for (const [member, at] of this.#refused) {
      if (now - at < REFUSAL_MS) break
      this.#refused.delete(member)
    }
    if (this.#refused.has(memberId)) return false
    this.#refused.set(memberId, now)
    return true
  }

  /** Adds an event of the owner. The owner bounds their number. */
  defer(event: OwnEvent): void {
    this.#waiting.set(this.#number++, event)
  }

  /** The queued messages, oldest first. */
  get arrivals(): readonly Arrival[] {
    return [...this.#waiting.values()].filter((waiting) => typeof waiting !== 'function')
  }

  /** True if a join of this member waits. */
  hasJoin(memberId: string): boolean {
    return this.#waiting.has(`join ${memberId}`)
  }

  get empty(): boolean {
    return this.#waiting.size === 0
  }

  /** Time at which the oldest message was queued. Undefined: the inbox has no messages, or the time is unknown. */
  get since(): number | undefined {
    for (const waiting of this.#waiting.values()) if (typeof waiting !== 'function') return waiting.at
    return undefined
  }

  /** Removes and returns the oldest entry. */
  shift(): Arrival | OwnEvent | undefined {
    for (const [key, waiting] of this.#waiting) {
      this.#delete(key, waiting)
      return waiting
    }
    return undefined
  }

  /** Removes and returns the messages for which `chosen` returns true. Calls `chosen` in their order. */
  remove(chosen: (arrival: Arrival) => boolean): readonly Arrival[] {
    const removed: Arrival[] = []
    for (const [key, waiting] of this.#waiting) {
      if (typeof waiting === 'function' || !chosen(waiting)) continue
      this.#delete(key, waiting)
      removed.push(waiting)
    }
    return removed
  }

  /** Removes and returns all messages, oldest first. */
  take(): readonly Arrival[] {
    return this.remove(() => true)
  }

  /** Drops the events of an owner that has ended. */
  dropEvents(): void {
    for (const [key, waiting] of this.#waiting) if (typeof waiting === 'function') this.#waiting.delete(key)
  }

  #delete(key: string | number, waiting: Arrival | OwnEvent): void {
    this.#waiting.delete(key)
    // V8 replaces the table of a Map that gets and loses entries, and each old table points to the next one. In the old generation, they
    // would keep all later tables with their messages until a major garbage collection.
    if (this.#waiting.size === 0) this.#waiting = new Map()
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

  /** Adds a message, or replaces an earlier one in its position, so that the order relative to other messages stays. */
  #keep(key: string, arrival: Arrival): boolean {
    if (!this.#waiting.has(key) && this.#full) return false
    this.#waiting.set(key, arrival)
    return true
  }

  get #full(): boolean {
    return this.#waiting.size - this.#messages - this.#requests >= OTHERS_PER_MESSAGE * this.#mostMessages
  }
}
