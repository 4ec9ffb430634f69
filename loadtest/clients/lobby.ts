import { type Client, type Room, RoomfulError } from '../../client/index.ts'
import { type Clock, sleep } from '../../shared/clock.ts'
import type { LobbyRoom } from '../rooms/lobby.ts'
import { SdkClients, type SdkClientsOptions } from './sdk-clients.ts'

type Rooms = { 'load-lobby': LobbyRoom }
type LobbyClient = Client<Rooms>
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

/** Players who open, list, watch and find rooms. */
export class LobbyClients {
  readonly #clock: Clock
  readonly #clients: SdkClients<Rooms>
  #rooms: Room<LobbyRoom>[] = []
  /** By room id: when it ended, on the monotonic clock. */
  readonly #endedAt = new Map<string, number>()
  readonly #ghosts: string[] = []
  readonly #refused: string[] = []
  #lists = 0
  #changed = 0

  constructor(options: SdkClientsOptions) {
    this.#clock = options.clock
    this.#clients = new SdkClients(options)
  }

  get findings(): LobbyFindings {
    return { lists: this.#lists, ghosts: this.#ghosts, refused: this.#refused }
  }

  /** Opens rooms, spread over `maps` maps. */
  async open({ rooms, maps, perSecond }: { rooms: number; maps: number; perSecond: number }): Promise<void> {
    const hosts = await this.#connect(Math.ceil(rooms / ROOMS_PER_CLIENT))
    const numbers = Array.from({ length: rooms }, (_, number) => number)
    await this.#clients.ramp(numbers, perSecond, async (number) => {
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
        await sleep(this.#clock, RETRY_MS)
      }
    }
  }

  /** The row of a room changes, `perSecond` times a second for `seconds`: of one of the rooms that lists begin with, the oldest of each map. */
  async change(options: { perSecond: number; seconds: number; maps: number }): Promise<void> {
    const { perSecond, seconds, maps } = options
    const shown = Math.min(this.#rooms.length, maps * SHOWN)
    const numbers = Array.from({ length: perSecond * seconds }, (_, number) => number)
    await this.#clients.ramp(numbers, perSecond, async () => {
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
    await this.#clients.ramp(numbers, perSecond, async (number) => {
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
        this.#clients
          .unlessInterrupted(client.joinOrCreate('load-lobby', { map }, { where: { map } }))
          .catch((error: unknown) => {
            if (!(error instanceof RoomfulError)) throw error
            this.#refused.push(error.code)
          }),
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
    await this.#clients.ramp(ended, perSecond, async (room) => {
      const gone = new Promise<void>((resolve) => {
        room.onLeave(() => {
          this.#endedAt.set(room.id, this.#clock.monotonic())
          resolve()
        })
      })
      await room.send('end', null)
      await this.#clients.unlessInterrupted(gone)
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
    this.#clients.close()
  }

  #listed(rows: readonly Row[]): number {
    const now = this.#clock.monotonic()
    this.#lists += 1
    for (const { roomId } of rows) {
      const endedAt = this.#endedAt.get(roomId)
      if (endedAt !== undefined && now - endedAt > GHOST_MS)
        this.#ghosts.push(`${roomId} was listed ${Math.round(now - endedAt)} ms after its end`)
    }
    return rows.length
  }

  #connect(count: number): Promise<LobbyClient[]> {
    return this.#clients.connect(Array.from({ length: count }, () => undefined))
  }
}
