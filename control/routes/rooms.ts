import { hash } from 'node:crypto'
import { randomToken } from '../../shared/ids.ts'
import type { ProblemCode } from '../../shared/problem.ts'
import { invalid } from '../../shared/validate.ts'
import { type Caller, requireOperator, requireProject, requireScope } from '../auth.ts'
import type { Call, Endpoint, Endpoints, Services } from '../endpoint.ts'
import { PLAYER_SCOPE, ROOM_CALL_SCOPE, ROOM_READ_SCOPE } from '../keys.ts'
import { enabled } from '../projects.ts'
import { checkedKey } from '../records.ts'
import {
  CallAnswer,
  CallData,
  CallQuery,
  ClosedRoom,
  EndedRoom,
  KickedPlayer,
  KickPlayer,
  Nothing,
  OpenedRoom,
  OpenRoom,
  ReservedSeats,
  ReserveSeats,
  RoomPage,
  RoomQuery,
  RoomsQuery,
  RoomView,
} from '../schemas.ts'

/** Action of a request, as `POST /internal/rooms/requests` of a node takes it. */
interface Wish {
  readonly do: { readonly op: string; readonly [field: string]: unknown }
  /** Present: a room that does not exist is created. */
  readonly create?: { readonly options?: unknown }
}

/** Problems of all calls that nodes answer. */
const FORWARDED: readonly ProblemCode[] = ['project_not_found', 'node_unavailable', 'timeout']
/** Problems of calls that keys may make. */
const FOR_CALLERS: readonly ProblemCode[] = ['missing_scope', 'project_disabled', ...FORWARDED]

/** Problems of a request that creates its room. */
const NO_ROOM_LEFT: readonly ProblemCode[] = ['project_full', 'too_many_rooms']

/** Characters of an idempotency key that control makes: 126 random bits. */
const KEY_LENGTH = 21

/** `GET /projects/:id/rooms` and everything below it. Nodes answer these calls. */
export function roomRoutes(endpoints: Endpoints, { projects, nodes, random }: Services): void {
  /** Rejects with a `Problem` if the caller is not allowed. Operators reach the rooms of a disabled project, and create none. */
  async function authorise(caller: Caller, projectId: string, scope: string, creates = false): Promise<void> {
    requireProject(caller, projectId)
    if (caller.kind === 'key') {
      requireScope(caller.key, scope)
      enabled(projectId, caller.project)
    } else if (creates) await projects.requireEnabled(projectId)
    else await projects.require(projectId)
  }

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects/:id/rooms',
      tag: 'Rooms',
      summary: 'List rooms',
      description:
        'With type: the listed rooms of a room type that have a row. A row can be about two seconds old. A key needs the scope room:read. With sleeping=1: rooms that no node runs, because they sleep or wait for a timer, or because their node has died and no client has returned. Rooms that expire first come first. A page may have fewer rooms than limit; the list ends where next_cursor is null.',
      access: 'caller',
      query: RoomsQuery,
      answer: { status: 200, description: 'One page of rooms.', schema: RoomPage },
      problems: FOR_CALLERS,
    },
    async ({ caller, params: { id = '' }, query: { sleeping, type, limit, ...query } }) => {
      if (sleeping !== undefined) requireOperator(caller)
      await authorise(caller, id, ROOM_READ_SCOPE)
      if ((type === undefined) === (sleeping === undefined))
        throw invalid([{ path: 'type', message: 'give either type, or sleeping=1' }])
      return nodes.call({
        method: 'GET',
        path: type === undefined ? '/internal/rooms' : '/internal/listings',
        query: { project_id: id, room_type: type, limit: limit?.toString(), ...query },
      })
    },
  )

  /** Mounts a call that runs one turn of a room. The room runs it once for each idempotency key of a caller, and keeps the outcome. */
  function mountRequest<Body, Query>(
    endpoint: Omit<Endpoint<Body, Query>, 'tag' | 'access' | 'idempotent'>,
    scope: string,
    wishOf: (call: Call<Body, Query>, callId: string) => Wish,
  ): void {
    const problems = ['room_unavailable', 'rate_limited', 'conflict', ...endpoint.problems]
    endpoints.mount<Body, Query>(
      {
        ...endpoint,
        tag: 'Rooms',
        access: 'caller',
        idempotent: '10 minutes',
        problems: [...(problems as ProblemCode[]), ...FOR_CALLERS],
      },
      async (call) => {
        const { caller, params, idempotencyKey } = call
        const { id: projectId = '', type = '', key = '' } = params
        const callId = checkedKey(idempotencyKey) ?? randomToken(random, KEY_LENGTH)
        const wish = wishOf(call, callId)
        await authorise(caller, projectId, scope, wish.create !== undefined)
        const request = {
          id: `${caller.id}/${callId}`,
          hash: hash('sha256', JSON.stringify(wish), 'base64url'),
          ...wish,
        }
        const body = { project_id: projectId, room_id: `${type}:${key}`, request }
        return nodes.call({ method: 'POST', path: '/internal/rooms/requests', body })
      },
    )
  }

  mountRequest(
    {
      method: 'POST',
      path: '/projects/:id/rooms/:type/:key/calls/:name',
      summary: 'Call a room',
      description:
        'Runs a call of the room type (calls) as one turn of the room, in the order of arrival with the messages of players, and answers after the turn is stored. The body is the data of the call. It wakes a sleeping room. If the owner of the room dies, the call waits for the next owner for up to 10 s; after a 504, the same key is safe to send again. A key needs the scope room:call.',
      body: CallData,
      query: CallQuery,
      answer: { status: 200, description: 'The reply of the room.', schema: CallAnswer },
      problems: ['room_not_found', 'room_logic_refused', 'room_logic_failed', ...NO_ROOM_LEFT],
    },
    ROOM_CALL_SCOPE,
    ({ caller, params: { name }, query, body }, callId) => ({
      do: { op: 'call', name, data: body, caller: { key_id: caller.id, call_id: callId } },
      ...(query.open !== undefined && { create: {} }),
    }),
  )

  mountRequest(
    {
      method: 'PUT',
      path: '/projects/:id/rooms/:type/:key',
      summary: 'Open a room',
      description:
        'Creates the room if it does not exist, as the first join would. A key needs the scope room:call.',
      body: OpenRoom,
      answer: { status: 200, description: 'The room exists.', schema: OpenedRoom },
      problems: ['room_logic_failed', ...NO_ROOM_LEFT],
    },
    ROOM_CALL_SCOPE,
    ({ body }) => ({ do: { op: 'open' }, create: body }),
  )

  mountRequest(
    {
      method: 'POST',
      path: '/projects/:id/rooms/:type/:key/reserve',
      summary: 'Reserve seats',
      description:
        'Reserves seats for all of the players or for none (room_full). A reservation counts towards maxPlayers until its player joins or it expires. 409 for a room type with durability none. A key needs the scope room:call.',
      body: ReserveSeats,
      answer: { status: 200, description: 'The seats are reserved.', schema: ReservedSeats },
      problems: ['room_not_found', 'room_full'],
    },
    ROOM_CALL_SCOPE,
    ({ body }) => ({ do: { op: 'reserve', ...body } }),
  )

  mountRequest(
    {
      method: 'POST',
      path: '/projects/:id/rooms/:type/:key/kick',
      summary: 'Remove a player from a room',
      description:
        'Ends all seats of a player with the reason kicked. onLeave runs. The player can join again. A key needs the scope player:manage.',
      body: KickPlayer,
      answer: { status: 200, description: 'The player has no seat.', schema: KickedPlayer },
      problems: ['room_not_found'],
    },
    PLAYER_SCOPE,
    ({ body }) => ({ do: { op: 'kick', ...body } }),
  )

  mountRequest(
    {
      method: 'POST',
      path: '/projects/:id/rooms/:type/:key/close',
      summary: 'Close a room',
      description:
        'Ends the room as ctx.close() does: its members leave with reason closed, onDispose runs, and its database gets the last state. A key needs the scope room:call.',
      body: Nothing,
      answer: { status: 200, description: 'The room has ended.', schema: ClosedRoom },
      problems: ['room_not_found'],
    },
    ROOM_CALL_SCOPE,
    () => ({ do: { op: 'close' } }),
  )

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects/:id/rooms/:type/:key',
      tag: 'Rooms',
      summary: 'Look into a room',
      description:
        'Members and position of a room, and its state with include_state. A sleeping room is not opened for it. A key needs the scope room:read.',
      access: 'caller',
      query: RoomQuery,
      answer: { status: 200, description: 'The room.', schema: RoomView },
      problems: ['room_not_found', 'room_unavailable', ...FOR_CALLERS],
    },
    async ({ caller, params: { id = '', type = '', key = '' }, query }) => {
      if (query.include_layers !== undefined) requireOperator(caller)
      await authorise(caller, id, ROOM_READ_SCOPE)
      const about = { project_id: id, room_id: `${type}:${key}` }
      return nodes.call({ method: 'GET', path: '/internal/room', query: { ...about, ...query } })
    },
  )

  endpoints.mount(
    {
      method: 'DELETE',
      path: '/projects/:id/rooms/:type/:key',
      tag: 'Rooms',
      summary: 'End a room',
      description:
        'Ends a room as ctx.close() does: its members leave with reason closed, onDispose runs, and its database gets the last state. A room that sleeps or waits for a timer is opened for that. If no node has code for its type, the room is deleted without a hook.',
      access: 'operator',
      answer: { status: 200, description: 'The room has ended.', schema: EndedRoom },
      problems: ['room_not_found', 'room_unavailable', ...FORWARDED],
    },
    async ({ caller, params: { id: projectId = '', type = '', key = '' } }) => {
      await projects.require(projectId)
      // If a node hangs and another ends the room, the first must not end the next room of that key later.
      const id = `${caller.id}/${randomToken(random, KEY_LENGTH)}`
      return nodes.call({
        method: 'DELETE',
        path: '/internal/rooms',
        query: { project_id: projectId, room_id: `${type}:${key}`, id },
      })
    },
  )
}
