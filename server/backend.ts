import type { ListedRoom as ClientListedRoom, RoomQuery } from '../client/finding.ts'
import type { Json, JsonObject } from '../shared/json.ts'
import type { RoomCalls, RoomOptions, TypedRoom, UntypedRoom, VisibleState } from '../shared/room-types.ts'
import { type BackendOptions, type BackendParts, Control, type ControlRequest } from './control.ts'

/** Options of a token. */
export interface TokenOptions {
  /** Player's id in your game. Tokens without it have no identity that rooms, bans and reservations could name. */
  readonly sub?: string
  /** Seconds for which the token is valid, 10 to 86,400. Default 300. */
  readonly ttlSeconds?: number
  /** Data for room code (`member.data`), at most 2 KiB of JSON. Other players do not get it. */
  readonly data?: JsonObject
  /** Room types, or `type:key`, that the player may join. Default: all. */
  readonly rooms?: readonly string[]
  /** Audience of the token, if the nodes require one. */
  readonly aud?: string
}

/** Options of a call that changes something. */
export interface CallOptions {
  /**
   * Id of the call, 1 to 255 printable ASCII characters, such as an order number. Calls with the same id within 10 minutes run once and give
   * the same answer. Default: a random id, which covers the retries of this call.
   */
  readonly id?: string
}

/** Arguments of `call` after the name. The data may be omitted if it may be null. */
export type CallArguments<Data> = null extends Data
  ? [data?: Data, options?: CallOptions & OpenOption]
  : [data: Data, options?: CallOptions & OpenOption]

interface OpenOption {
  /** True: a room that does not exist is created. Default: the call rejects with `room_not_found`. */
  readonly open?: boolean
}

/** Arguments of `open`. The options may be omitted if none is required. */
type OpenArguments<Options> =
  Partial<Options> extends Options
    ? [options?: Options, more?: CallOptions]
    : [options: Options, more?: CallOptions]

/** A member of a room, as a backend sees it. */
export interface RoomMember {
  /** Id of the member in the room. */
  readonly id: string
  /** Player's id. Null: the token has none. */
  readonly sub: string | null
  /** True while the member's client is connected. */
  readonly connected: boolean
  /** True: the member watches. */
  readonly spectator: boolean
  /** Data of the player: from the token, or from `setData`. Null: none. */
  readonly data: JsonObject | null
}

/** A seat that a room keeps for a player who is not there yet. */
export interface ReservedSeat {
  /** Player's id. */
  readonly sub: string
  /** End of the reservation, RFC 3339. */
  readonly expiresAt: string
}

/** A room, as a backend sees it. */
export interface RoomDescription {
  /** `type:key`. */
  readonly roomId: string
  /** Members in the order they joined. */
  readonly members: readonly RoomMember[]
  /** Reserved seats. */
  readonly reservations: readonly ReservedSeat[]
  /** Number that grows each time a server process opens the room. */
  readonly epoch: number
  /** Number that grows with each update of the room. */
  readonly seq: number
}

/** Position in a list. */
export interface Page {
  /** Maximum number of entries. */
  readonly limit?: number
  /** `nextCursor` of the page before. */
  readonly cursor?: string
}

/** One room in a list. */
export interface ListedRoom<R extends TypedRoom = TypedRoom<UntypedRoom>> extends ClientListedRoom<R> {
  /** Code of the room, for `joinByCode`. Undefined: its type has no `codes`. */
  readonly code: string | undefined
}

/** Query of a list of rooms. */
export interface RoomListQuery<R extends TypedRoom = TypedRoom<UntypedRoom>>
  extends Omit<RoomQuery<R>, 'limit'>,
    Page {}

/** One page of a list of rooms. */
export interface RoomList<R extends TypedRoom = TypedRoom<UntypedRoom>> {
  /** The rooms. */
  readonly rooms: readonly ListedRoom<R>[]
  /** `cursor` for the next page. Undefined: this is the last one. */
  readonly nextCursor: string | undefined
}

/** Options of a ban. */
export interface BanOptions {
  /** End of the ban. Default: it has none. */
  readonly until?: Date
  /** The ban keeps the player out of rooms of these types only. Default: out of the project. */
  readonly roomTypes?: readonly string[]
  /** Text for the player, at most 100 bytes. */
  readonly reason?: string
}

/** A ban of a player. */
export interface Ban {
  /** Player's id. */
  readonly sub: string
  /** End of the ban, RFC 3339. Undefined: it has none. */
  readonly until: string | undefined
  /** Types of the rooms that the player is kept out of. Undefined: the project. */
  readonly roomTypes: readonly string[] | undefined
  /** Text for the player. */
  readonly reason: string | undefined
}

/** One page of the bans of a project. */
export interface BanList {
  /** The bans. */
  readonly bans: readonly Ban[]
  /** `cursor` for the next page. Undefined: this is the last one. */
  readonly nextCursor: string | undefined
}

/** Rooms and players of a project. `roomful` returns one. */
export class Backend {
  readonly #control: Control
  readonly #projectId: string

  /** Called by `roomful`. */
  constructor(options: BackendOptions, parts: BackendParts) {
    this.#control = new Control(options, parts)
    this.#projectId = options.projectId
  }

  /** Returns a token for a player's client. Needs the scope `token:mint`. */
  async token({ ttlSeconds, ...claims }: TokenOptions = {}): Promise<string> {
    const body = { project_id: this.#projectId, ...claims, ttl_seconds: ttlSeconds }
    return (await this.#control.request<{ token: string }>('POST', ['tokens'], { body })).token
  }

  /**
   * Returns the calls of one room. Nothing is sent. With `room<typeof duel>('duel', key)`, TypeScript knows the names of the calls, their
   * data and their replies.
   */
  room<R extends TypedRoom = TypedRoom<UntypedRoom>>(type: R['type'], key: string): BackendRoom<R> {
    return new BackendRoom(this.#control, ['projects', this.#projectId, 'rooms', type, key])
  }

  /** Returns a page of the listed rooms of a type (`listing` of the room type). Needs the scope `room:read`. */
  async rooms<R extends TypedRoom = TypedRoom<UntypedRoom>>(
    type: R['type'],
    { where, full, ...page }: RoomListQuery<R> = {},
  ): Promise<RoomList<R>> {
    const query = { type, where: where && JSON.stringify(where), full: full ? 1 : undefined, ...page }
    const { rooms, next_cursor: next } = await this.#request<RoomListAnswer>('GET', ['rooms'], { query })
    return {
      rooms: rooms.map(
        ({ room_id, key, players, max_players, spectators, reserved, created_at, data, code }) => ({
          roomId: room_id,
          key,
          players,
          maxPlayers: max_players ?? undefined,
          spectators: spectators ?? 0,
          reserved,
          createdAt: created_at,
          data: data as ListedRoom<R>['data'],
          code,
        }),
      ),
      nextCursor: next ?? undefined,
    }
  }

  /**
   * Closes the player's sessions within a second, and refuses tokens that were issued before now. A newer token is accepted. Takes an operator
   * token as `key`.
   */
  async revokePlayer(sub: string): Promise<void> {
    await this.#request('POST', ['subs', sub, 'revoke'])
  }

  /** Closes the player's sessions within a second and keeps the player out until `unban`. Needs the scope `player:manage`. */
  async ban(sub: string, { until, roomTypes, reason }: BanOptions = {}): Promise<void> {
    const body = { until: until?.toISOString(), room_types: roomTypes, reason }
    await this.#request('PUT', ['subs', sub, 'ban'], { body })
  }

  /** Ends a ban. Needs the scope `player:manage`. */
  async unban(sub: string): Promise<void> {
    await this.#request('DELETE', ['subs', sub, 'ban'])
  }

  /** Returns a page of the bans. Needs the scope `player:manage`. */
  async bans({ limit, cursor }: Page = {}): Promise<BanList> {
    const query = { limit, cursor }
    const { bans, next_cursor: next } = await this.#request<BanListAnswer>('GET', ['bans'], { query })
    return {
      bans: bans.map(({ sub, until, room_types, reason }) => ({
        sub,
        until: until ?? undefined,
        roomTypes: room_types ?? undefined,
        reason: reason ?? undefined,
      })),
      nextCursor: next ?? undefined,
    }
  }

  /**
   * Replaces `member.data` of the player in all rooms, now and for later joins, until `clearData`. Needs the scope `player:manage`.
   */
  async setData(sub: string, data: JsonObject): Promise<void> {
    await this.#request('PUT', ['subs', sub, 'data'], { body: { data } })
  }

  /** Ends `setData`: the data of the player's token counts again. Needs the scope `player:manage`. */
  async clearData(sub: string): Promise<void> {
    await this.#request('DELETE', ['subs', sub, 'data'])
  }

  #request<Answer>(
    method: 'GET' | 'POST' | 'PUT' | 'DELETE',
    path: readonly string[],
    more?: ControlRequest,
  ): Promise<Answer> {
    return this.#control.request<Answer>(method, ['projects', this.#projectId, ...path], more)
  }
}

/** State of a described room. */
export interface DescribedState<R extends TypedRoom> {
  /** State of the room, without its hidden parts. */
  readonly state: VisibleState<R>
}

/**
 * One room. Each method that changes the room is one turn of it, in the order of arrival with the messages of players, and resolves when the
 * turn is stored. `R` is the type of the room's definition, such as `typeof duel`.
 */
export class BackendRoom<R extends TypedRoom = TypedRoom<UntypedRoom>> {
  readonly #control: Control
  readonly #path: readonly string[]

  /** Called by `room`. */
  constructor(control: Control, path: readonly string[]) {
    this.#control = control
    this.#path = path
  }

  /** Runs a call of the room type (`calls`) and resolves to its reply, null if it has none. Wakes a sleeping room. Needs the scope `room:call`. */
  async call<K extends keyof RoomCalls<R> & string>(
    name: K,
    ...[data, { id, open } = {}]: CallArguments<RoomCalls<R>[K]['data']>
  ): Promise<RoomCalls<R>[K]['reply']> {
    const more = { id, query: { open: open ? 1 : undefined }, body: data ?? null }
    return (await this.#change<{ reply: RoomCalls<R>[K]['reply'] }>('POST', ['calls', name], more)).reply
  }

  /** Creates the room if it does not exist. Resolves to true if it was created. Needs the scope `room:call`. */
  async open(...[options, { id } = {}]: OpenArguments<RoomOptions<R>>): Promise<boolean> {
    return (await this.#change<{ created: boolean }>('PUT', [], { id, body: { options } })).created
  }

  /** Resolves to the state, without hidden parts, with members and position. A sleeping room is not woken. Needs the scope `room:read`. */
  async state(): Promise<RoomDescription & DescribedState<R>> {
    const { state, ...room } = await this.#view({ include_state: 1 })
    return { ...described(room), state: state as VisibleState<R> }
  }

  /** The same as `state`, without the state. */
  async describe(): Promise<RoomDescription> {
    return described(await this.#view())
  }

  /**
   * Keeps seats for players, for so many seconds or until they join: for all of them, or the call rejects with `room_full`. Needs the scope
   * `room:call`.
   */
  async reserve(
    subs: readonly string[],
    { seconds, id }: CallOptions & { readonly seconds: number },
  ): Promise<void> {
    await this.#change('POST', ['reserve'], { id, body: { subs, seconds } })
  }

  /**
   * Removes a player, who leaves with the reason `kicked`, gets the text `reason`, and can join again. Resolves to the number of seats that
   * the player had. Needs the scope `player:manage`.
   */
  async kick(sub: string, { reason, id }: CallOptions & { readonly reason?: string } = {}): Promise<number> {
    return (await this.#change<{ kicked: number }>('POST', ['kick'], { id, body: { sub, reason } })).kicked
  }

  /** Ends the room. Its members leave with the reason `closed`. Needs the scope `room:call`. */
  async close({ id }: CallOptions = {}): Promise<void> {
    await this.#change('POST', ['close'], { id })
  }

  #view(query: Readonly<Record<string, number>> = {}): Promise<RoomAnswer> {
    return this.#control.request<RoomAnswer>('GET', this.#path, { query })
  }

  #change<Answer>(method: 'POST' | 'PUT', path: readonly string[], request: ControlRequest): Promise<Answer> {
    return this.#control.request<Answer>(method, [...this.#path, ...path], request)
  }
}

const described = ({ room_id, members, reservations, epoch, seq }: RoomAnswer): RoomDescription => ({
  roomId: room_id,
  members: members.map(({ member_id, ...member }) => ({ id: member_id, ...member })),
  reservations: reservations.map(({ sub, expires_at }) => ({ sub, expiresAt: expires_at })),
  epoch,
  seq,
})

interface RoomAnswer extends Pick<RoomDescription, 'epoch' | 'seq'> {
  readonly room_id: string
  readonly members: readonly (Omit<RoomMember, 'id'> & { readonly member_id: string })[]
  readonly reservations: readonly { readonly sub: string; readonly expires_at: string }[]
  readonly state?: unknown
}

interface RoomListAnswer {
  readonly rooms: readonly {
    readonly room_id: string
    readonly key: string
    readonly players: number
    readonly max_players: number | null
    readonly spectators?: number
    readonly reserved: number
    readonly created_at: string
    readonly data: Json
    readonly code?: string
  }[]
  readonly next_cursor: string | null
}

interface BanListAnswer {
  readonly bans: readonly {
    readonly sub: string
    readonly until?: string | null
    readonly room_types?: readonly string[] | null
    readonly reason?: string | null
  }[]
  readonly next_cursor: string | null
}
