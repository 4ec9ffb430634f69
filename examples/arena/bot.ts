import { type Client, connect, type Room } from 'roomful/client'
import { Login } from '../ui/login.ts'
import type arena from './room.ts'
import { predictMe, Walker } from './walker.ts'

const STEP_MS = 50
const STILL = { x: 0, y: 0 }
const REACH = 130
/** Probabilities for each step: that a standing bot starts to walk, and that a bot hits a player in reach. */
const RESTLESS = 0.04
const ANGRY = 0.03

/** A computer player with a separate connection. It walks randomly and hits players in reach, as long as its tab is open. */
export class Bot {
  readonly #client: Client
  readonly #room: Room<typeof arena>
  readonly #me: ReturnType<typeof predictMe>
  readonly #walker: Walker
  #movedMs = performance.now()

  private constructor(client: Client, room: Room<typeof arena>) {
    this.#client = client
    this.#room = room
    this.#me = predictMe(room)
    this.#walker = new Walker(this.#me)
    const timer = setInterval(() => this.#step(), STEP_MS)
    room.onLeave(() => clearInterval(timer))
    room.on('hit', ({ target, hp }) => {
      const mine = room.state.players[room.memberId]
      if (target === room.memberId && hp <= 0 && mine) this.#walker.putAt(mine, performance.now())
    })
  }

  /** Logs in as a new player `name` and joins the arena `key`. Rejects with an Error to show to the player. */
  static async join(key: string, name: string): Promise<Bot> {
    const login = new Login('arena', { name })
    const { project_id: projectId, token, ws_url: wsUrl } = await login.session()
    const getToken = async () => (await login.session()).token
    const client = await connect(wsUrl, { projectId, token, getToken })
    try {
      return new Bot(client, await client.join<typeof arena>('arena', { key }))
    } catch (error) {
      client.close()
      throw error
    }
  }

  leave(): void {
    this.#client.close()
  }

  #step(): void {
    const now = performance.now()
    const walker = this.#walker
    if (!walker.goal && Math.random() < RESTLESS) {
      walker.walkTo({ x: Math.random() * 1000, y: Math.random() * 1000 })
    }
    // In a background tab, timers run late. The limit of 0.2 s prevents large steps.
    walker.step(STILL, Math.min(0.2, (now - this.#movedMs) / 1000) * 0.6, now)
    this.#movedMs = now
    if (Math.random() < ANGRY) this.#hitSomebody()
  }

  #hitSomebody(): void {
    const { x, y } = this.#me.value ?? { x: 0, y: 0 }
    const near = Object.entries(this.#room.state.players).find(
      ([id, player]) => id !== this.#room.memberId && Math.hypot(player.x - x, player.y - y) < REACH,
    )
    // The room refuses the hit if the target has just left. The bot ignores this.
    if (near) void this.#room.send('hit', { target: near[0] }).catch(() => undefined)
  }
}
