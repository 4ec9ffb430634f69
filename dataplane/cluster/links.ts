import { type Clock, MOMENT_MS, untilNext } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Bus } from '../../shared/store/port.ts'
import {
  type Envelope,
  EnvelopeReader,
  EnvelopeWriter,
  envelopeHeader,
  type OutgoingEnvelope,
  type PeerMessage,
  PIECE_BYTES,
  UnknownVersion,
} from './envelope.ts'
import type { ClusterMetrics } from './metrics.ts'

/** Bus channel on which a node receives messages of other nodes. */
export const nodeChannel = (nodeId: string): string => `node:${nodeId}`

/** Dependencies of `NodeLinks`. */
interface LinksEnvironment {
  readonly nodeId: string
  readonly bus: Bus
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: ClusterMetrics
  /** Runs a callback at the end of the current turn of the event loop. */
  readonly defer: (callback: () => void) => void
}

/** Receives the messages of other nodes. */
interface Receiver {
  receive(message: PeerMessage, from: string): void
  /** Messages of a node, or of any node (undefined), may be lost. Called before the messages that follow the gap. */
  missed(from: string | undefined): void
}

/**
 * Minimum time between two sends, in milliseconds. A send takes all messages that have collected; after a longer pause it happens at the end of
 * the turn. One envelope costs both nodes about 100 µs of CPU, however small it is. `awaited`: a client waits for the message. `update`: the
 * other rooms of the same moment flush within this time. `input`: the message waits for a flush at the other node anyway, so it leaves
 * `LEAD_MS` before the next moment.
 */
const GATHER_MS = { awaited: 1, update: 2, input: MOMENT_MS } as const
type Urgency = keyof typeof GATHER_MS
/** Time before a moment at which inputs leave, so that they are at the other node when its rooms flush. */
const LEAD_MS = 3
/**
 * A shorter wait is skipped: timers have a minimum of one millisecond, and a client that waits for each ack would be delayed by its previous
 * message.
 */
const SHORTEST_MS = 0.5
/** An envelope of this size is closed, and the next one started. */
const LARGEST_ENVELOPE = 1 << 20
/** A link sends two empty envelopes at this interval after its last message, so that the receiver also detects the loss of the last message. */
const BEAT_MS = 500
const BEATS = 2

/** Outgoing state of the link to one node. */
interface Outgoing {
  readonly channel: string
  readonly writer: EnvelopeWriter
  waiting: boolean
  /** Envelopes that wait behind the first one, which is leaving in pieces. */
  readonly leaving: OutgoingEnvelope[]
  /** Number of the last envelope. */
  number: number
  sentAt: number
  /** Number of empty envelopes that will still follow. */
  beats: number
}

/** Incoming state of the link from one node. */
interface Incoming {
  /** Number of the last envelope. */
  number: number
  /** The received pieces of an incomplete envelope. */
  pieces: Uint8Array[]
}

/**
 * Links to the other nodes over the store's bus, with one channel per node. Under load, messages collect for some milliseconds. Then all of them
 * leave in one write, with one envelope per node; a large envelope leaves in pieces. Envelopes are numbered, so that the receiver detects lost
 * ones. Lost envelopes are not sent again.
 */
export class NodeLinks {
  readonly #environment: LinksEnvironment
  #receiver: Receiver | undefined
  readonly #header: Uint8Array
  readonly #reader = new EnvelopeReader()
  readonly #outgoing = new Map<string, Outgoing>()
  readonly #incoming = new Map<string, Incoming>()
  readonly #unknownVersions = new Set<string>()
  /** Wall-clock time at monotonic 0, as in the scheduler of rooms: a change of the wall clock does not move this node's moments. */
  readonly #wallAtZero: number
  #waiting: Outgoing[] = []
  /** Time of the last send, on the monotonic clock. */
  #sentAt = Number.NEGATIVE_INFINITY
  /** The queued messages leave this many milliseconds after `#sentAt`. Infinity: the queue is empty. */
  #gatherMs = Number.POSITIVE_INFINITY
  #cancelGathering: (() => void) | undefined
  #cancelBeats: (() => void) | undefined
  #unsubscribe: (() => Promise<void>) | undefined
  #busFails = false
  #closed = false

  constructor(environment: LinksEnvironment) {
    this.#environment = environment
    this.#header = envelopeHeader(environment.nodeId)
    this.#wallAtZero = environment.clock.now() - environment.clock.monotonic()
  }

  /** Starts to pass messages of other nodes to `receiver`. Resolves when this node listens. Rejects if the store cannot be reached. */
  async start(receiver: Receiver): Promise<void> {
    const { bus, nodeId } = this.#environment
    this.#receiver = receiver
    this.#unsubscribe = await bus.subscribe(
      nodeChannel(nodeId),
      (bytes) => this.#receive(bytes),
      () => this.#gap(undefined),
    )
  }

  /**
   * Sends a message within some milliseconds, together with others. If nothing was sent for that long, it leaves at the end of this turn. The
   * message is encoded immediately, so its objects may change afterwards.
   */
  send(to: string, message: PeerMessage, urgency: Urgency = 'awaited'): void {
    if (this.#closed) return
    const link = this.#link(to)
    try {
      link.writer.add(message)
    } catch (error) {
      this.#environment.log.error({ err: error, peer: to }, 'bus message not encoded')
      return
    }
    if (link.writer.bytes >= LARGEST_ENVELOPE) this.#publish(link)
    if (!link.waiting) this.#waiting.push(link)
    link.waiting = true
    this.#gather(GATHER_MS[urgency])
  }

  /** Drops the state of a node that is gone. If it returns, its first envelope shows a gap. */
  forget(nodeId: string): void {
    this.#outgoing.get(nodeId)?.leaving.splice(0)
    this.#outgoing.delete(nodeId)
    this.#incoming.delete(nodeId)
    this.#unknownVersions.delete(nodeId)
  }

  /** Sends an empty envelope to a node that is new or has returned. A node that has been there all the time detects a gap with it. */
  greet(nodeId: string): void {
    if (this.#closed) return
    const link = this.#link(nodeId)
    link.beats = BEATS + 1
    this.#publish(link)
  }

  /** Sends the queued messages, and stops listening. */
  async close(): Promise<void> {
    this.#flush()
    this.#closed = true
    this.#cancelBeats?.()
    await this.#unsubscribe?.()
  }

  #link(to: string): Outgoing {
    let link = this.#outgoing.get(to)
    if (!link) {
      const writer = new EnvelopeWriter(this.#header)
      link = { channel: nodeChannel(to), writer, waiting: false, leaving: [], number: 0, sentAt: 0, beats: 0 }
      this.#outgoing.set(to, link)
    }
    return link
  }

  /** Schedules the next send: `ms` after the last one, at the end of this turn if that has passed, or after the next moment. */
  #gather(ms: number): void {
    if (ms >= this.#gatherMs) return
    const { clock, defer } = this.#environment
    const pauseMs = this.#sentAt + ms - clock.monotonic()
    const leftMs =
      ms === MOMENT_MS && pauseMs > 0
        ? MOMENT_MS - ((clock.monotonic() + this.#wallAtZero + LEAD_MS) % MOMENT_MS)
        : pauseMs
    this.#cancelGathering?.()
    this.#cancelGathering = undefined
    const waits = leftMs >= SHORTEST_MS
    this.#gatherMs = waits ? ms : 0
    if (waits) this.#cancelGathering = clock.schedule(leftMs, this.#flush)
    else defer(this.#flush)
  }

  readonly #flush = (): void => {
    const waiting = this.#waiting
    this.#waiting = []
    this.#gatherMs = Number.POSITIVE_INFINITY
    this.#cancelGathering?.()
    this.#cancelGathering = undefined
    this.#sentAt = this.#environment.clock.monotonic()
    for (const link of waiting) {
      link.waiting = false
      if (link.writer.bytes > 0) this.#publish(link)
    }
  }

  #publish(link: Outgoing): void {
    const envelope = link.writer.take()
    const { messages } = envelope
    this.#environment.metrics.peerMessages.inc(messages)
    link.sentAt = this.#environment.clock.monotonic()
    link.beats = messages > 0 ? BEATS : link.beats - 1
    link.leaving.push(envelope)
    if (link.leaving.length === 1) this.#transmit(link)
    if (link.beats > 0) this.#armBeats()
  }

  /** Sends the leaving envelopes, up to the first piece of one that is not complete with that piece. */
  #transmit(link: Outgoing): void {
    const { metrics } = this.#environment
    for (let next = link.leaving[0]; next; next = link.leaving[0]) {
      const { envelope, isLast } = next.read(PIECE_BYTES, ++link.number)
      metrics.peerPublishes.inc()
      metrics.peerBytes.inc(envelope.length)
      if (!isLast) {
        this.#handOver(link, envelope, () => this.#transmit(link))
        return
      }
      link.leaving.shift()
      this.#handOver(link, envelope)
    }
  }

  /** Passes an envelope to the bus. Calls `taken` in a later turn, when the bus has taken it. */
  #handOver(link: Outgoing, envelope: Uint8Array, taken?: () => void): void {
    const { bus, defer } = this.#environment
    try {
      // Deferred, so that a large envelope does not fill a turn of the event loop alone.
      const sent = taken && ((error: unknown) => defer(() => this.#handedOver(link, taken, error)))
      if (bus.send?.(link.channel, envelope, sent)) return
    } catch (error) {
      this.#lost(link, error)
      return
    }
    bus.publish(link.channel, envelope).then(
      () => this.#handedOver(link, taken),
      (error: unknown) => this.#lost(link, error),
    )
  }

  #handedOver(link: Outgoing, taken: (() => void) | undefined, error?: unknown): void {
    if (error) {
      this.#lost(link, error)
      return
    }
    this.#busFails = false
    taken?.()
  }

  /** Handles a failed publish. The receiver detects the gap in the numbers, at the latest with the beats after the bus works again. */
  #lost(link: Outgoing, error: unknown): void {
    const { log, metrics } = this.#environment
    // Drops the envelopes behind it: they would arrive after the repeated questions. One more number is skipped, because this piece may have arrived.
    if (link.leaving.splice(0).length > 0) link.number++
    metrics.peerFaults.inc({ fault: 'unpublished' })
    if (this.#closed) return
    if (!this.#busFails) log.warn({ err: error }, 'bus publish failed')
    this.#busFails = true
    link.beats = BEATS
    this.#armBeats()
  }

  #armBeats(): void {
    if (this.#closed) return
    this.#cancelBeats ??= this.#environment.clock.schedule(
      untilNext(this.#environment.clock, BEAT_MS / 2),
      this.#beat,
    )
  }

  readonly #beat = (): void => {
    this.#cancelBeats = undefined
    const now = this.#environment.clock.monotonic()
    for (const link of this.#outgoing.values()) {
      if (link.beats === 0) continue
      if (now - link.sentAt >= BEAT_MS) this.#publish(link)
      else this.#armBeats()
    }
  }

  #receive(bytes: Uint8Array): void {
    const { log } = this.#environment
    let envelope: Envelope
    try {
      envelope = this.#reader.header(bytes)
    } catch (error) {
      if (error instanceof UnknownVersion) this.#unknown(error)
      else this.#damaged(error, undefined)
      return
    }
    const { sender } = envelope
    const link = this.#incoming.get(sender) ?? { number: 0, pieces: [] }
    this.#incoming.set(sender, link)
    const missing = envelope.number !== link.number + 1
    link.number = envelope.number
    if (missing) link.pieces = []
    let messages: PeerMessage[]
    try {
      messages = this.#reader.messages(body(bytes, envelope, link))
    } catch (error) {
      this.#damaged(error, sender)
      return
    }
    if (missing) this.#gap(sender)
    for (const message of messages) {
      try {
        this.#receiver!.receive(message, sender)
      } catch (error) {
        log.error({ err: error, peer: sender }, 'bus message failed')
      }
    }
  }

  #gap(from: string | undefined): void {
    this.#environment.metrics.peerFaults.inc({ fault: 'gap' })
    this.#receiver!.missed(from)
  }

  /** A damaged envelope counts as lost. */
  #damaged(error: unknown, from: string | undefined): void {
    this.#environment.metrics.peerFaults.inc({ fault: 'unreadable' })
    this.#environment.log.error({ err: error, peer: from }, 'bus envelope unreadable')
    this.#gap(from)
  }

  /** Not a gap: repeated questions would get unreadable answers again. */
  #unknown(error: UnknownVersion): void {
    this.#environment.metrics.peerFaults.inc({ fault: 'unreadable' })
    if (this.#unknownVersions.has(error.sender)) return
    this.#unknownVersions.add(error.sender)
    this.#environment.log.warn({ err: error, peer: error.sender }, 'bus envelope of another version')
  }
}

/** Returns the messages that can be decoded after an envelope: all of them, or none while pieces are missing. */
function body(bytes: Uint8Array, { bodyAt, pieces }: Envelope, link: Incoming): Uint8Array {
  const piece = bytes.subarray(bodyAt)
  if (!pieces.continues) link.pieces = []
  // The first piece was lost. The gap in the numbers has already been reported.
  else if (link.pieces.length === 0) return NOTHING
  if (!pieces.continues && !pieces.follows) return piece
  link.pieces.push(piece)
  return pieces.follows ? NOTHING : Buffer.concat(link.pieces.splice(0))
}

const NOTHING = new Uint8Array()
