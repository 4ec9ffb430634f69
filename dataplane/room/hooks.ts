import { fileURLToPath } from 'node:url'
import { roomIdOf, roomNamed } from '../traffic.ts'

/** Hooks of a room type: the functions of room code that roomful calls. */
export const HOOKS = [
  'create',
  'load',
  'save',
  'migrate',
  'options',
  'admit',
  'onJoin',
  'onMessage',
  'onCall',
  'onDisconnect',
  'onReconnect',
  'onLeave',
  'onTick',
  'onTimer',
  'task',
  'onTask',
  'onDispose',
  'listing',
] as const
export type TurnHook = (typeof HOOKS)[number]

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const OWN_FOLDERS = [`${ROOT}dataplane`, `${ROOT}shared`]

/** Returns true for a stack frame of roomful or Node. Such frames, for example those of a state's views, do not show where room code is. */
export const isOwnFrame = (frame: string): boolean =>
  frame.includes('node:') || OWN_FOLDERS.some((folder) => frame.includes(folder))

/** The room whose code runs. */
export interface TurnRoom {
  /** `project/type:key`. */
  readonly name: string
  readonly epoch: number
  /** When the room was made, in milliseconds since 1970. Undefined: it is being made. */
  readonly createdAt?: number
}

/** Cause of a call of room code, as far as the room's next owner needs it. */
export interface TurnCause {
  readonly hook: TurnHook
  /** Id of the member, the timer, the task or the request; for a join, of the session. Empty: none. */
  readonly subject: string
  /** Ref of the message or request id of the join; due time of a timer; 0: none. */
  readonly ref: number
  /** Type of the message; name of the call, the timer or the task. Empty: none. */
  readonly type: string
  /** The player who caused it (`playerOf`). Empty: no player did. */
  readonly principal: string
}

/** A call of room code. */
export interface Turn extends TurnCause {
  readonly room: TurnRoom
}

/** Returns the fields of a log line about a turn. */
export function fieldsOf({ room, hook, type, principal }: Turn) {
  const address = roomNamed(room.name)
  return {
    project_id: address.projectId,
    room_id: roomIdOf(address),
    room_type: address.roomType,
    epoch: room.epoch,
    hook,
    ...(type !== '' && { message_type: type }),
    ...(principal !== '' && { principal }),
  }
}

/** Returns the turn as plain data, without the other properties of its room. */
export const plainTurn = ({ room, hook, subject, ref, type, principal }: Turn): Turn => ({
  room: { name: room.name, epoch: room.epoch },
  hook,
  subject,
  ref,
  type,
  principal,
})

/** Observes every call of room code, on the hot path. */
export interface TurnObserver {
  /** Room code starts. A turn that starts inside another one is part of that turn. */
  begin(turn: Turn, guarded: boolean): void
  end(): void
  /** The asynchronous call that started last and has not finished. Undefined: none. */
  open(turn: Turn | undefined): void
  /** Returns the place in the code at which the running turn was found after a while. Undefined: unknown. */
  placeOf?(turn: Turn): string | undefined
}

/** Observes nothing. */
export const noObserver: TurnObserver = { begin() {}, end() {}, open() {} }
