import { Duplex } from 'node:stream'
import type { Clock } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import { Lane } from './lane.ts'

/** One end of a simulated TCP connection. Its other end gets what is written here later, and through its process's gate. */
export class SimSocket extends Duplex {
  readonly #lane: Lane
  #peer: SimSocket | undefined
  #pass: (happening: () => void) => void

  private constructor(lane: Lane, pass: (happening: () => void) => void) {
    super({ allowHalfOpen: false })
    this.#lane = lane
    this.#pass = pass
  }

  /** Two ends of one connection. `pass`: the gate of the process at the second end. */
  static pair(
    clock: Clock,
    random: Random,
    pass: (happening: () => void) => void,
  ): [client: SimSocket, server: SimSocket] {
    const client = new SimSocket(new Lane(clock, random), (happening) => happening())
    const server = new SimSocket(new Lane(clock, random), pass)
    client.#peer = server
    server.#peer = client
    return [client, server]
  }

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    const bytes = Buffer.from(chunk)
    this.#send((peer) => peer.push(bytes))
    done()
  }

  override _final(done: () => void): void {
    this.#send((peer) => peer.push(null))
    done()
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#send((peer) => peer.destroy())
    done(error)
  }

  /** The connection as a killed process leaves it: its last words still arrive, then the other end sees it closed. */
  abandon(): void {
    this.#pass = () => undefined
    this.#send((peer) => peer.destroy())
  }

  #send(arrive: (peer: SimSocket) => void): void {
    const peer = this.#peer!
    this.#lane.send(() => peer.#pass(() => peer.destroyed || arrive(peer)))
  }
}
