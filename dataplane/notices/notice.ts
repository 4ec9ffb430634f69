import type { Json } from '../../shared/json.ts'

/** Body of a notice, as a backend receives it. */
export interface NoticeBody {
  readonly type: string
  readonly project_id: string
  /** `type:key`. */
  readonly room_id: string
  /** Epoch of the owner, and seq of the update that was written with the notice. */
  readonly epoch: number
  readonly seq: number
  /** Time of the turn, RFC 3339. */
  readonly at: string
  readonly data: Json
}

/** A notice as the store has it. */
export interface StoredNotice {
  /** Header `webhook-id`, the same for every attempt. */
  readonly id: string
  /** JSON text, the same for every attempt. */
  readonly body: string
}

/** Returns the bytes of a notice in the store: its id, a space, and its body. */
export const encodeNotice = (id: string, body: NoticeBody): Uint8Array =>
  new TextEncoder().encode(`${id} ${JSON.stringify(body)}`)

/** Reads what `encodeNotice` has written. */
export function decodeNotice(bytes: Uint8Array): StoredNotice {
  const text = new TextDecoder().decode(bytes)
  const space = text.indexOf(' ')
  return { id: text.slice(0, space), body: text.slice(space + 1) }
}
