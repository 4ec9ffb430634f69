import { type Client, connect, type Room, RoomfulError } from '../../client/index.ts'
import { type Clock, sleep } from '../../shared/clock.ts'
import type { Issuer } from '../issuer.ts'
import type { LobbyRoom } from '../rooms/lobby.ts'
import { ramp } from './pace.ts'
import { MeteredSocket } from './socket.ts'

interface LobbyOptions {
  readonly wsUrls: readonly string[]
  readonly issuer: Pick<Issuer, 'issue'>
  readonly clock: Clock
  /** Rejects when the run is interrupted. */
  readonly interrupted: Promise<never>
}

type LobbyClient = Client<{ 'load-lobby': LobbyRoom }>
type Row = Awaited<ReturnType<LobbyClient['rooms']>>[number]

/** What players of the lobby have seen. */
export interface LobbyFindings {
  /** Lists that were received, by queries and watches. */
  readonly lists: number
  /** Rows of rooms that had ended more than 2 s before. */
  readonly ghosts: readonly string[]
  /** Codes of calls that failed. */
  readonly refused: readonly string[]
}

/** A client is a member of so many rooms, which is the limit of the service. */
export const ROOMS_PER_CLIENT = 16
const LEVELS = 100
/** Rows in a list. */
const SHOWN = 20
/** Lists a second. The service allows 10 to each player. */
const QUERIES_PER_CLIENT = 5
const GHOST_MS = 2000
const RETRY_MS = 1000

/** Players who open, list, watch and find rooms: SDK clients in the main thread. */
export class LobbyClients {
  readonly #options: LobbyOptions
  readonly #clients: LobbyClient[] = []
  #rooms: Room<LobbyRoom>[] = []
  /** By room id: when it ended, on the monotonic clock. */
  readonly #endedAt = new Map<string, number>()
  readonly #ghosts: string[] = []
  readonly #refused: string[] = []
  #lists = 0
  #changed = 0

  constructor(options: LobbyOptions) {
    this.#options = options
  }

  get findings(): LobbyFindings {
    return { lists: this.#lists, ghosts: this.#ghosts, refused: this.#refused }
  }

  /** Opens rooms, spread over `maps` maps. */
  async open({ rooms, maps, perSecond }: { rooms: number; maps: number; perSecond: number }): Promise<void> {
    const hosts = await this.#connect(Math.ceil(rooms / ROOMS_PER_CLIENT))
    const numbers = Array.from({ length: rooms }, (_, number) => number)
    await this.#ramp(numbers, perSecond, async (number) => {
      const host = hosts[number % hosts.length]!
      this.#rooms.push(await this.#create(host, `m${number % maps}`))
    })
  }

  /** A node that is asked for too many rooms at once refuses some. */
  async #create(host: LobbyClient, map: string): Promise<Room<LobbyRoom>> {
    for (;;) {
      try {
        return await host.create('load-lobby', { map })
      } catch (error) {
        if (!(error instanceof RoomfulError && error.retryable)) throw error
        await sleep(this.#options.clock, RETRY_MS)
      }
    }
  }

  /** The row of a room changes, `perSecond` times a second for `seconds`: of one of the rooms that lists begin with, the oldest of each map. */
  async change(options: { perSecond: number; seconds: number; maps: number }): Promise<void> {
    const { perSecond, seconds, maps } = options
    const shown = Math.min(this.#rooms.length, maps * SHOWN)
    const numbers = Array.from({ length: perSecond * seconds }, (_, number) => number)
    await this.#ramp(numbers, perSecond, async () => {
      this.#changed += 1
      const room = this.#rooms[this.#changed % shown]!
      // Another level than in the round before.
      await room.send('level', (this.#changed + Math.floor(this.#changed / shown)) % LEVELS)
    })
  }

  /** Lists rooms, each time of another map and with other levels. */
  async query({ seconds, perSecond, maps }: { seconds: number; perSecond: number; maps: number }) {
    const clients = await this.#connect(Math.ceil(perSecond / QUERIES_PER_CLIENT))
    const numbers = Array.from({ length: seconds * perSecond }, (_, number) => number)
    await this.#ramp(numbers, perSecond, async (number) => {
      const where = {
        map: `m${number % maps}`,
        level: { max: LEVELS - (Math.floor(number / maps) % LEVELS) },
      }
      this.#listed(await clients[number % clients.length]!.rooms('load-lobby', { where }))
    })
  }

  /** So many clients watch a list from now on, each with another query. */
  async watch({ count, maps }: { count: number; maps: number }): Promise<void> {
    const clients = await this.#connect(count)
    clients.forEach((client, i) => {
      const where = { map: `m${i % maps}`, level: { max: LEVELS - (Math.floor(i / maps) % LEVELS) } }
      client.watchRooms('load-lobby', { where }, (rows) => this.#listed(rows))
    })
  }

  /** So many clients call `joinOrCreate` at one moment. Resolves with the number of rooms that they share. Then they leave. */
  async burst({ count, map }: { count: number; map: string }): Promise<number> {
    const clients = await this.#connect(count)
    const found = await Promise.all(
      clients.map((client) =>
        this.#unlessInterrupted(client.joinOrCreate('load-lobby', { map }, { where: { map } })).catch(
          (error: unknown) => {
            if (!(error instanceof RoomfulError)) throw error
            this.#refused.push(error.code)
          },
        ),
      ),
    )
    const ids = new Set(found.flatMap((room) => room?.id ?? []))
    for (const client of clients) client.close()
    return ids.size
  }

  /** Ends so many rooms. */
  async end({ count, perSecond }: { count: number; perSecond: number }): Promise<void> {
    const ended = this.#rooms.slice(0, count)
    this.#rooms = this.#rooms.slice(count)
    await this.#ramp(ended, perSecond, async (room) => {
      const gone = new Promise<void>((resolve) => {
        room.onLeave(() => {
          this.#endedAt.set(room.id, this.#options.clock.monotonic())
          resolve()
        })
      })
      await room.send('end', null)
      await this.#unlessInterrupted(gone)
    })
  }

  /** Lists all rooms of a map, and returns their number. */
  async count({ map }: { map: string }): Promise<number> {
    const [client] = await this.#connect(1)
    const rows = await client!.rooms('load-lobby', { where: { map }, full: true, limit: 100 })
    client!.close()
    return this.#listed(rows)
  }

  close(): void {
    for (const client of this.#clients) client.close()
  }

  #listed(rows: readonly Row[]): number {
    const now = this.#options.clock.monotonic()
    this.#lists += 1
    for (const { roomId } of rows) {
      const endedAt = this.#endedAt.get(roomId)
      if (endedAt !== undefined && now - endedAt > GHOST_MS)
        this.#ghosts.push(`${roomId} was listed ${Math.round(now - endedAt)} ms after its end`)
    }
    return rows.length
  }

  async #connect(count: number): Promise<LobbyClient[]> {
    const { wsUrls, issuer, clock } = this.#options
    const { projectId, token } = await this.#unlessInterrupted(issuer.issue())
    const clients: LobbyClient[] = []
    const numbers = Array.from({ length: count }, (_, number) => number)
    const nothing = () => undefined
    await this.#ramp(numbers, 200, async (number) => {
      const { WebSocket } = new MeteredSocket(wsUrls, number)
      const options = { projectId, token, WebSocket, clock, reroute: false, onError: nothing }
      clients.push(await connect<{ 'load-lobby': LobbyRoom }>(wsUrls[0]!, options))
    })
    this.#clients.push(...clients)
    return clients
  }

  /** Rejects with the first error when the ramp is over. */
  async #ramp<T>(items: readonly T[], perSecond: number, work: (item: T) => Promise<void>): Promise<void> {
    const pace = { perSecond, offset: 0, ended: () => false }
    const errors: unknown[] = []
    const guarded = (item: T) => work(item).catch((error: unknown) => void errors.push(error))
    await this.#unlessInterrupted(ramp(this.#options.clock, items, pace, guarded))
    if (errors.length > 0) throw errors[0]
  }

  #unlessInterrupted<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#options.interrupted])
  }
}
