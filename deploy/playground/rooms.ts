import type { Json } from '../../shared/json.ts'

/** The part of JSON Schema that forms are made of. */
export interface JsonSchema {
  readonly type?: string
  readonly enum?: readonly Json[]
  readonly const?: Json
  readonly default?: Json
  readonly properties?: { readonly [name: string]: JsonSchema }
  readonly required?: readonly string[]
  readonly minimum?: number
  readonly maximum?: number
  readonly maxLength?: number
}

/** A room type as the playground knows it. Schemas are absent where the type has none, or its library does not say. */
export interface RoomToPlay {
  readonly type: string
  readonly options?: JsonSchema | undefined
  /** Whether players can list its rooms. */
  readonly listed: boolean
  readonly messages: readonly MessageToSend[]
}

export interface MessageToSend {
  readonly name: string
  readonly data?: JsonSchema | undefined
  /** Whether it is answered. */
  readonly replies: boolean
}

/** What `GET /dev/rooms` answers. */
export interface RoomsToPlay {
  readonly ws_url: string
  /** Whether the owner of a room can be ended here, to see what follows. */
  readonly kills: boolean
  readonly rooms: readonly RoomToPlay[]
}
