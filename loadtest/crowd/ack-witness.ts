/** Around something that interrupts the stream of a room, acks may come later than what they ack. */
const UNQUIET_MS = 1000

/** A message that the state showed as applied, and whose ack was not there when it should have been. */
interface Suspicion {
  readonly n: number
  readonly seq: number
  readonly at: number
  /** In which read of the socket it was shown. */
  readonly read: number
}

/**
 * Looks whether each message of one member in one room is acked when it should be. In a room that shows each message at once, the ack
 * leaves in the same write as the update that shows the message, behind it and before the next update. So an ack that has not come by
 * the end of the read that brought the next update is lost, although a later one would make up for it: acks are cumulative. Only
 * where missed updates are sent again (after a resume, or when the room has moved) one ack stands for all of them; such moments are
 * told with `disturbed`, also shortly afterwards, and nothing near them counts.
 *
 * All calls come in the order of the wire. Times are milliseconds of any monotonic clock.
 */
export class AckWitness {
  readonly #lost: (text: string) => void
  /** By ref, the number of the message. */
  readonly #unacked = new Map<number, number>()
  /** Shown as applied, but not acked; `seq`: of the update that showed it. */
  #shown: Suspicion | undefined
  /** An update behind that one came in the same read; the ack has until the end of it. */
  #followed = false
  #read = 0
  /** What is a violation unless something unquiet comes up. */
  #suspicions: Suspicion[] = []
  #acked = 0
  /** The last message that is suspected: nothing up to it is again. */
  #judged = 0
  #disturbed_at = Number.NEGATIVE_INFINITY

  /** `lost` is told each time. */
  constructor(lost: (text: string) => void) {
    this.#lost = lost
  }

  /** A message left, for the first time. */
  sent(ref: number, n: number): void {
    this.#unacked.set(ref, n)
  }

  /** This ref and all before it are acked. */
  acked(ref: number): void {
    for (const [each, n] of this.#unacked) {
      if (each > ref) break
      this.#unacked.delete(each)
      this.#acked = n
    }
    if (this.#shown && this.#acked >= this.#shown.n) this.#settle()
  }

  /** An update arrives. */
  update(seq: number): void {
    if (!this.#shown || seq <= this.#shown.seq) return
    if (this.#shown.read === this.#read) this.#followed = true
    else this.#suspect(this.#shown)
  }

  /** After the update `seq` the state shows everything up to message `n` as applied. */
  shown(n: number, seq: number, at: number): void {
    if (n > Math.max(this.#acked, this.#judged)) this.#shown ??= { n, seq, at, read: this.#read }
  }

  /** What was sent in one piece has been read. */
  read(): void {
    this.#read += 1
    if (this.#followed && this.#shown) this.#suspect(this.#shown)
  }

  /** A connection was lost or is back, the room has moved, a whole state came, or the client did not read. */
  disturbed(at: number): void {
    this.#disturbed_at = at
    this.#settle()
    this.#suspicions = this.#suspicions.filter((suspicion) => at - suspicion.at > UNQUIET_MS)
  }

  /** Whether an ack that is not there can be nothing but lost. */
  quiet(now: number): boolean {
    return now - this.#disturbed_at > UNQUIET_MS
  }

  /** Tells of what can be nothing else by now; to be called about once a second. */
  review(now: number): void {
    const ripe = this.#suspicions.filter(({ at }) => now - at > UNQUIET_MS)
    this.#suspicions = this.#suspicions.filter(({ at }) => now - at <= UNQUIET_MS)
    for (const { n, seq } of ripe)
      this.#lost(
        `message ${n} was in the state at seq ${seq}, but its ack had not come before the next update`,
      )
  }

  #suspect(suspicion: Suspicion): void {
    this.#judged = suspicion.n
    if (suspicion.at - this.#disturbed_at > UNQUIET_MS) this.#suspicions.push(suspicion)
    this.#settle()
  }

  #settle(): void {
    this.#shown = undefined
    this.#followed = false
  }
}
