import { once } from 'node:events'
import type { WebSocket } from 'ws'

/** How to get one client of the load into its room, and what it sends there. */
export interface Player {
  readonly socket: WebSocket
  /** The bytes of its next input. */
  input(): Uint8Array
}

/** What arrived during a window. */
export interface Received {
  readonly updates: number
  readonly bytes: number
  readonly inputs: number
  readonly seconds: number
}

/** The clients of one scenario against one server; counts what arrives without looking into it. */
export class Load {
  #updates = 0
  #bytes = 0
  #inputs = 0
  readonly #players: readonly Player[]

  constructor(players: readonly Player[]) {
    this.#players = players
    for (const { socket } of players) {
      socket.on('message', (data: Buffer) => {
        this.#updates += 1
        this.#bytes += data.length
      })
    }
  }

  /** Sends `rate` inputs per second and player for `seconds`, spread evenly, from absolute deadlines. */
  async run(seconds: number, rate: number): Promise<Received> {
    const before = { updates: this.#updates, bytes: this.#bytes, inputs: this.#inputs }
    const start = performance.now()
    const end = start + seconds * 1_000
    const interval = rate > 0 ? 1_000 / (rate * this.#players.length) : Number.POSITIVE_INFINITY
    let sent = 0
    while (performance.now() < end) {
      const due = rate > 0 ? Math.floor((performance.now() - start) / interval) : 0
      for (; sent < due; sent++) {
        const player = this.#players[sent % this.#players.length]!
        player.socket.send(player.input())
        this.#inputs += 1
      }
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    return {
      updates: this.#updates - before.updates,
      bytes: this.#bytes - before.bytes,
      inputs: this.#inputs - before.inputs,
      seconds: (performance.now() - start) / 1_000,
    }
  }

  async close(): Promise<void> {
    await Promise.all(
      this.#players.map(({ socket }) => {
        const closed = once(socket, 'close')
        socket.terminate()
        return closed
      }),
    )
  }
}
