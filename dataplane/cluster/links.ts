import { MOMENT_MS, untilNext } from '../../shared/clock.ts'
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
import type { ClusterEnvironment } from './ownership.ts'
import type { Router } from './router.ts'

/** The channel that a node listens on for the others. */
export const nodeChannel = (nodeId: string): string => `node:${nodeId}`

interface LinksEnvironment extends Pick<ClusterEnvironment, 'nodeId' | 'clock' | 'log' | 'metrics'> {
  readonly bus: Bus
  /** Runs a callback when the present turn of the event loop is over. */
  readonly defer: (callback: () => void) => void
}

/** Receives the messages of other nodes. `missed`: some may be lost. It comes before those that follow. */
type Receiver = Pick<Router, 'receive' | 'missed'>

/**
 * A message leaves at the earliest so many milliseconds after what left last, with all that has come meanwhile; after a longer pause it
 * leaves at once. An envelope costs both nodes some 100 µs of CPU however little is in it. `awaited`: a client waits for it. `update`:
 * the other rooms of this moment are flushed within less. `input`: it waits for a flush at the other node anyway, and leaves with the
 * updates of the next moment, or just after it.
 */
const GATHER_MS = { awaited: 1, update: MOMENT_MS / 2, input: MOMENT_MS } as const
type Urgency = keyof typeof GATHER_MS
/** So long after a moment its updates have left. */
const FLUSHED_MS = 1
/**
 * What would wait for less leaves at once: no timer is shorter than a millisecond, and a client that waits for each ack would be held up
 * by its own last message.
 */
const SHORTEST_MS = 0.5
/** An envelope that has grown to this is closed, and the next begun. */
const LARGEST_ENVELOPE = 1 << 20
/** A link that said something says that it said no more after this long, so that the loss of the last message is noticed too. */
const BEAT_MS = 500
const BEATS = 2

/** To one other node. */
interface Outgoing {
  readonly channel: string
  readonly writer: EnvelopeWriter
  waiting: boolean
  /** Envelopes behind one that is leaving in pieces, which is the first. */
  readonly leaving: OutgoingEnvelope[]
  /** Number of the last envelope. */
  number: number
  sentAt: number
  /** How many empty envelopes may still follow. */
  beats: number
}

/** From one other node. */
interface Incoming {
  /** Number of the last envelope. */
  number: number
  /** What has come of an envelope in pieces. */
  pieces: Uint8Array[]
}

/**
 * The links to the other nodes over the store's bus, one channel per node. What there is for the others is gathered for some milliseconds
 * while there is much of it; then all of it leaves in one write, as one envelope for each node, a large one in pieces. Envelopes are
 * numbered, so that the receiver notices what the bus has lost. What is lost is not sent again.
 */
export class NodeLinks {
  readonly #environment: LinksEnvironment
  #receiver: Receiver | undefined
  readonly #header: Uint8Array
  readonly #reader = new EnvelopeReader()
  readonly #outgoing = new Map<string, Outgoing>()
  readonly #incoming = new Map<string, Incoming>()
  readonly #unknownVersions = new Set<string>()
  /** As of the scheduler of rooms: the moments of this node stay where they were when its wall clock is set. */
  readonly #wallAtZero: number
  #waiting: Outgoing[] = []
  /** When something left last, on the monotonic clock. */
  #sentAt = Number.NEGATIVE_INFINITY
  /** What waits leaves so many milliseconds after that; Infinity: nothing waits. */
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

  /** Hands the messages of other nodes to `receiver`. Resolves when this node listens; rejects when the store cannot be reached. */
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
   * Sends with what else there is for other nodes in the next milliseconds; at the end of this turn where none of them was sent
   * anything for as long. The message is encoded at once: what it is made of may change afterwards.
   */
  send(to: string, message: PeerMessage, urgency: Urgency = 'awaited'): void {
    if (this.#closed) return
    const link = this.#link(to)
    try {
      link.writer.add(message)
    } catch (error) {
      this.#environment.log.error({ err: error, peer: to }, 'a message to another node cannot be encoded')
      return
    }
    if (link.writer.bytes >= LARGEST_ENVELOPE) this.#publish(link)
    if (!link.waiting) this.#waiting.push(link)
    link.waiting = true
    this.#gather(GATHER_MS[urgency])
  }

  /** Lets go of what is known of a node that is gone. Should it come back, its first envelope tells of a gap. */
  forget(nodeId: string): void {
    this.#outgoing.get(nodeId)?.leaving.splice(0)
    this.#outgoing.delete(nodeId)
    this.#incoming.delete(nodeId)
    this.#unknownVersions.delete(nodeId)
  }

  /** Lets a node that is back, or new, hear of this one. Should it have been here all the time, it finds that it missed something. */
  greet(nodeId: string): void {
    if (this.#closed) return
    const link = this.#link(nodeId)
    link.beats = BEATS + 1
    this.#publish(link)
  }

  /** Sends what waits, and listens no more. */
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

  /** What waits leaves at once where nothing left for so many milliseconds; else when they are over, or after the next moment. */
  #gather(ms: number): void {
    if (ms >= this.#gatherMs) return
    const { clock, defer } = this.#environment
    const pauseMs = this.#sentAt + ms - clock.monotonic()
    const leftMs =
      ms === MOMENT_MS && pauseMs > 0
        ? MOMENT_MS - ((clock.monotonic() + this.#wallAtZero) % MOMENT_MS) + FLUSHED_MS
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
      if (link.writer.messages > 0) this.#publish(link)
    }
  }

  #publish(link: Outgoing): void {
    const { messages } = link.writer
    this.#environment.metrics.peerMessages.inc(messages)
    link.sentAt = this.#environment.clock.monotonic()
    link.beats = messages > 0 ? BEATS : link.beats - 1
    link.leaving.push(link.writer.take())
    if (link.leaving.length === 1) this.#transmit(link)
    if (link.beats > 0) this.#armBeats()
  }

  /** Sends what is leaving, up to the first piece of an envelope that is not whole with it. */
  #transmit(link: Outgoing): void {
    const { metrics } = this.#environment
    for (let next = link.leaving[0]; next; next = link.leaving[0]) {
      const envelope = next.read(PIECE_BYTES, ++link.number)
      metrics.peerPublishes.inc()
      metrics.peerBytes.inc(envelope.length)
      if (next.left > 0) {
        this.#handOver(link, envelope, () => this.#transmit(link))
        return
      }
      link.leaving.shift()
      this.#handOver(link, envelope)
    }
  }

  /** Gives an envelope to the bus. `taken` is called once that has it, in another turn. */
  #handOver(link: Outgoing, envelope: Uint8Array, taken?: () => void): void {
    const { bus } = this.#environment
    const settle = (error?: unknown): void => {
      if (error) this.#lost(link, error)
      else {
        this.#busFails = false
        taken?.()
      }
    }
    try {
      // Those behind it come in their turn when it has left: the next turn of the event loop is not theirs alone.
      if (
        bus.send?.(link.channel, envelope, taken && ((error) => this.#environment.defer(() => settle(error))))
      )
        return
    } catch (error) {
      settle(error)
      return
    }
    bus.publish(link.channel, envelope).then(() => settle(), settle)
  }

  /** The number is used up, so the receiver will notice; at the latest by the beats after the bus works again. */
  #lost(link: Outgoing, error: unknown): void {
    const { log, metrics } = this.#environment
    // All that waits behind it would come late, after what is asked again. A number goes with it, since this piece may have arrived.
    if (link.leaving.splice(0).length > 0) link.number++
    metrics.peerFaults.inc({ fault: 'unpublished' })
    if (this.#closed) return
    if (!this.#busFails)
      log.warn({ err: error }, 'messages to other nodes are lost: the bus does not take them')
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
        log.error({ err: error, peer: sender }, 'a message of another node could not be handled')
      }
    }
  }

  #gap(from: string | undefined): void {
    this.#environment.metrics.peerFaults.inc({ fault: 'gap' })
    this.#receiver!.missed(from)
  }

  /** As good as lost. */
  #damaged(error: unknown, from: string | undefined): void {
    this.#environment.metrics.peerFaults.inc({ fault: 'unreadable' })
    this.#environment.log.error({ err: error, peer: from }, 'what another node sent cannot be read')
    this.#gap(from)
  }

  /** Nothing would be won by asking again, so this is no gap. */
  #unknown(error: UnknownVersion): void {
    this.#environment.metrics.peerFaults.inc({ fault: 'unreadable' })
    if (this.#unknownVersions.has(error.sender)) return
    this.#unknownVersions.add(error.sender)
    this.#environment.log.warn({ err: error, peer: error.sender }, 'another node speaks another version')
  }
}

/** What there is to read once an envelope has come: all of it, or nothing while some of its pieces are missing. */
function body(bytes: Uint8Array, { bodyAt, pieces }: Envelope, link: Incoming): Uint8Array {
  const piece = bytes.subarray(bodyAt)
  if (!pieces.continues) link.pieces = []
  // Its beginning was lost, and that was told.
  else if (link.pieces.length === 0) return NOTHING
  if (!pieces.continues && !pieces.follows) return piece
  link.pieces.push(piece)
  return pieces.follows ? NOTHING : Buffer.concat(link.pieces.splice(0))
}

const NOTHING = new Uint8Array()
