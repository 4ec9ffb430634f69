import { type Client, connect, type RoomCollection } from '../../client/index.ts'
import type { Clock } from '../../shared/clock.ts'
import type { Issuer } from '../issuer.ts'
import { ramp } from './pace.ts'
import { MeteredSocket } from './socket.ts'

export interface SdkClientsOptions {
  readonly wsUrls: readonly string[]
  readonly issuer: Issuer
  readonly clock: Clock
  /** Rejects when the run is interrupted. */
  readonly interrupted: Promise<never>
}

/** Clients opened each second. */
const PER_SECOND = 200

/** SDK clients in the main thread, for scenarios whose players do more than to send messages. */
export class SdkClients<Rooms extends RoomCollection> {
  readonly #options: SdkClientsOptions
  readonly #clients: Client<Rooms>[] = []

  constructor(options: SdkClientsOptions) {
    this.#options = options
  }

  /** Connects a client for each player. A player is the `sub` of its token; undefined: of the token without a `sub`, which is one for all. */
  async connect(players: readonly (string | undefined)[]): Promise<Client<Rooms>[]> {
    const { wsUrls, issuer, clock } = this.#options
    const clients: Client<Rooms>[] = []
    const nothing = () => undefined
    let shared: ReturnType<Issuer['issue']> | undefined
    const issue = (sub: string | undefined) => {
      if (sub !== undefined) return issuer.issue(sub)
      shared ??= issuer.issue()
      return shared
    }
    await this.ramp([...players.entries()], PER_SECOND, async ([number, sub]) => {
      const { projectId, token } = await issue(sub)
      const { WebSocket } = new MeteredSocket(wsUrls, number)
      const options = { projectId, token, WebSocket, clock, reroute: false, onError: nothing }
      clients[number] = await connect<Rooms>(wsUrls[0]!, options)
    })
    for (const client of clients) this.#clients.push(client)
    return clients
  }

  close(): void {
    for (const client of this.#clients) client.close()
  }

  /** Does `work` for each item, so many each second. Rejects with the first error when the ramp is over. */
  async ramp<T>(items: readonly T[], perSecond: number, work: (item: T) => Promise<void>): Promise<void> {
    const pace = { perSecond, offset: 0, ended: () => false }
    const errors: unknown[] = []
    const guarded = (item: T) => work(item).catch((error: unknown) => void errors.push(error))
    await this.unlessInterrupted(ramp(this.#options.clock, items, pace, guarded))
    if (errors.length > 0) throw errors[0]
  }

  unlessInterrupted<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#options.interrupted])
  }
}
