import { connect, type RoomCollection, RoomfulError } from '../../client/index.ts'
import { type Backend, roomful } from '../../server/index.ts'
import { SdkClients, type SdkClientsOptions } from './sdk-clients.ts'
import { MeteredSocket } from './socket.ts'

/** Pause between two sessions of a player. The service allows 20 a second. */
const PLAYER_SECONDS = 1

/** Players of one project who connect and leave again. */
export class Visitors {
  readonly #options: SdkClientsOptions
  readonly #clients: SdkClients<RoomCollection>
  #backend: Backend | undefined
  #projectId = ''
  #tokens: string[] = []

  constructor(options: SdkClientsOptions) {
    this.#options = options
    this.#clients = new SdkClients(options)
  }

  /** Makes the project, and tokens of the players. Resolves with the id of the project. */
  async open({ perSecond }: { perSecond: number }): Promise<string> {
    const project = await this.#options.issuer.issueProject()
    this.#projectId = project.projectId
    this.#backend = roomful(project)
    const subs = Array.from({ length: perSecond * PLAYER_SECONDS }, (_, number) => `visitor-${number}`)
    await this.#clients.ramp(subs, perSecond, async (sub) => {
      this.#tokens.push(await this.#token(sub))
    })
    return this.#projectId
  }

  /** Players connect, and leave when they are in. */
  async visit({ perSecond, seconds }: { perSecond: number; seconds: number }): Promise<void> {
    const numbers = Array.from({ length: perSecond * seconds }, (_, number) => number)
    await this.#clients.ramp(numbers, perSecond, (number) =>
      this.#visit(this.#tokens[number % this.#tokens.length]!, number),
    )
  }

  /** Resolves with the code that the player is refused with. Undefined: it is let in. */
  async refusal(sub: string): Promise<string | undefined> {
    try {
      await this.#clients.unlessInterrupted(this.#token(sub).then((token) => this.#visit(token, 0)))
      return undefined
    } catch (error) {
      if (error instanceof RoomfulError) return error.code
      throw error
    }
  }

  #token(sub: string): Promise<string> {
    return this.#backend!.token({ sub, ttlSeconds: 3600 })
  }

  async #visit(token: string, number: number): Promise<void> {
    const { wsUrls, clock } = this.#options
    const { WebSocket } = new MeteredSocket(wsUrls, number)
    const settings = {
      projectId: this.#projectId,
      token,
      WebSocket,
      clock,
      reconnect: false,
      onError: () => undefined,
    }
    const client = await connect(wsUrls[0]!, settings)
    client.close()
  }
}
