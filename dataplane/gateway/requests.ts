import { type Clock, timestamp } from '../../shared/clock.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { ClientMessage, Limits } from '../../shared/protocol/messages.ts'
import { type RoomAddress, roomIdOf } from '../traffic.ts'
import type { Connection } from './connection.ts'
import type { Edge } from './edge.ts'
import type { JoinRates } from './join-rates.ts'
import type { JoinWatch } from './join-watch.ts'
import type { Session } from './session.ts'
import type { Subscription } from './subscription.ts'

/** A message that asks something of a session; `hello` and `token` are about who it is. */
export type Request = Exclude<ClientMessage, { t: 'hello' | 'token' }>

interface JoinRefusal {
  readonly code: ErrorCode
  readonly message: string
}

/** What the client of a session may ask once it is welcome. */
export class Requests {
  readonly #edge: Edge
  readonly #clock: Clock
  readonly #limits: Limits
  readonly #joins: JoinWatch
  readonly #joinRates: JoinRates

  constructor(edge: Edge, clock: Clock, limits: Limits, joins: JoinWatch, joinRates: JoinRates) {
    this.#edge = edge
    this.#clock = clock
    this.#limits = limits
    this.#joins = joins
    this.#joinRates = joinRates
  }

  /** Passes a request, which came in a frame of so many bytes, on to the room's owner, or answers it. */
  handle(session: Session, connection: Connection, request: Request, bytes: number): void {
    switch (request.t) {
      case 'message':
        this.#withSubscription(session, connection, request, (subscription) =>
          this.#edge.message(subscription, request, bytes),
        )
        break
      case 'ping':
        connection.send({ t: 'pong', at: request.at, server_time: timestamp(this.#clock.now()) })
        break
      case 'join':
        this.#join(session, connection, request)
        break
      case 'leave':
        this.#withSubscription(session, connection, request, (subscription) =>
          this.#edge.leave(subscription, request.ref),
        )
        break
      case 'state.resync':
        this.#withSubscription(session, connection, request, (subscription) =>
          this.#edge.resync(subscription, request),
        )
    }
  }

  /**
   * Refuses what was not even looked at. A reliable message to a room the session is in is settled by the room's owner, among the
   * others of its subscription, and answered from there.
   */
  refuse(
    session: Session,
    connection: Connection,
    refused: {
      readonly t?: string | undefined
      readonly ref?: number | undefined
      readonly room_id?: string | undefined
    },
    code: ErrorCode,
    message: string,
  ): void {
    const { t, ref, room_id: roomId } = refused
    const subscription =
      t === 'message' && roomId !== undefined ? session.subscriptions.get(roomId) : undefined
    if (subscription?.taken && ref !== undefined) this.#edge.refuse(subscription, code, message, ref)
    else connection.sendError(code, message, { ref })
  }

  #join(session: Session, connection: Connection, request: Extract<Request, { t: 'join' }>): void {
    const { ref, room_type: roomType, options } = request
    const room: RoomAddress = { projectId: session.projectId, roomType, key: options.key ?? 'default' }
    const roomId = roomIdOf(room)
    const subscription = session.subscriptions.get(roomId)
    const refused = this.#refusal(session, roomType, roomId)
    if (refused) {
      this.#joins.refused(session, room, refused.code)
      connection.sendError(refused.code, refused.message, { ref, room_id: roomId })
      return
    }
    if (subscription) this.#edge.finishLeave(subscription)
    this.#edge.join(session, connection, room, request)
  }

  /** Why a session may not ask for a subscription, or undefined. */
  #refusal(session: Session, roomType: string, roomId: string): JoinRefusal | undefined {
    // A colon parts type and key in a room id, so no room type has one.
    if (roomType.includes(':'))
      return { code: 'unknown_room_type', message: `there is no room type "${roomType}"` }
    if (!session.allows(roomType, roomId))
      return { code: 'forbidden', message: `the token does not allow ${roomId}` }
    const subscription = session.subscriptions.get(roomId)
    if (subscription && subscription.leaveRef === undefined)
      return { code: 'already_joined', message: `the session is in ${roomId}, or joining it, already` }
    const { max_rooms: maxRooms } = this.#limits
    if (!subscription && session.subscriptions.size >= maxRooms)
      return { code: 'too_many_rooms', message: `a session may be in ${maxRooms} rooms: leave one first` }
    if (!this.#joinRates.take(session)) return { code: 'rate_limited', message: this.#joinRates.text }
    return undefined
  }

  #withSubscription(
    session: Session,
    connection: Connection,
    request: Extract<Request, { room_id: string }>,
    handle: (subscription: Subscription) => void,
  ): void {
    const subscription = session.subscriptions.get(request.room_id)
    if (subscription?.taken) {
      handle(subscription)
      return
    }
    const ref = 'ref' in request ? request.ref : undefined
    const { room_id: roomId } = request
    connection.sendError('not_in_room', `the session is not in ${roomId}`, { ref, room_id: roomId })
  }
}
