import type { RoomNotices, TypedRoom } from '../shared/room-types.ts'

/** A notice of a room, from `ctx.notify`. */
export interface Notice<Type extends string = string, Data = unknown> {
  /** Id of the notice. A notice that arrives again has the same id: store it, or make your handler safe to repeat. */
  readonly id: string
  /** Name of the notice. */
  readonly type: Type
  /** Project of the room. */
  readonly projectId: string
  /** `type:key`. */
  readonly roomId: string
  /** Epoch of the room's owner. Of two notices of a room, the one with the larger `epoch`, then the larger `seq`, is newer. */
  readonly epoch: number
  /** Number of the update that was stored with the notice. */
  readonly seq: number
  /** Time of the handler that sent the notice, RFC 3339. */
  readonly at: string
  /** Data of the notice. */
  readonly data: Data
}

/** The notices of room type `R`. */
export type NoticeOf<R extends TypedRoom> = R extends TypedRoom
  ? {
      [K in keyof RoomNotices<R> & string]: Notice<K, RoomNotices<R>[K]>
    }[keyof RoomNotices<R> & string]
  : never

/** The request is not a notice from your servers, or it is too old. Answer it with status 400 or 401. */
export class InvalidNotice extends Error {
  /** Always `InvalidNotice`. */
  override readonly name = 'InvalidNotice'
}

const PREFIX = 'whsec_'
/** Maximum difference between the time of the request and the clock here, seconds. */
const TOLERANCE_S = 300

/**
 * Returns the notice in a request to your `NOTIFY_URL`. Rejects with `InvalidNotice` if the signature is wrong, or if the request was sent more than
 * five minutes ago. `secret`: the value of `NOTIFY_SECRET`. `R`: the room types that send notices, as `typeof duel`. The body of the request
 * must not be read before.
 */
export async function verifyNotice<R extends TypedRoom = TypedRoom>(
  request: Request,
  secret: string,
): Promise<NoticeOf<R>> {
  const id = headerOf(request, 'webhook-id')
  const timestamp = headerOf(request, 'webhook-timestamp')
  const signatures = headerOf(request, 'webhook-signature')
  const seconds = /^\d{1,12}$/.test(timestamp) ? Number(timestamp) : Number.NaN
  if (!(Math.abs(Date.now() / 1000 - seconds) <= TOLERANCE_S))
    throw new InvalidNotice(
      `webhook-timestamp is ${timestamp}: it must be within five minutes of the time of this machine`,
    )
  const body = await request.text()
  const content = new TextEncoder().encode(`${id}.${timestamp}.${body}`)
  const keys = await Promise.all(secret.split(',').map(importKey))
  const given = signatures.split(' ').flatMap((signature) => {
    const [, base64] = /^v1,([A-Za-z0-9+/]+={0,2})$/.exec(signature) ?? []
    return base64 === undefined ? [] : [bytesOf(base64)]
  })
  for (const key of keys)
    for (const signature of given)
      if (await crypto.subtle.verify('HMAC', key, signature, content))
        return readNotice(id, body) as NoticeOf<R>
  throw new InvalidNotice('webhook-signature is not a signature of this request with your secret')
}

function headerOf(request: Request, name: string): string {
  const value = request.headers.get(name)
  if (value) return value
  throw new InvalidNotice(`the request has no header ${name}`)
}

function importKey(secret: string): Promise<CryptoKey> {
  const text = secret.trim()
  if (!text.startsWith(PREFIX))
    throw new TypeError('the secret does not begin with whsec_: use the value of NOTIFY_SECRET')
  const key = bytesOf(text.slice(PREFIX.length))
  return crypto.subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify'])
}

const bytesOf = (base64: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))

/**
 * Reads the body of a notice.
 * @internal
 */
export function readNotice(id: string, body: string): Notice {
  const { type, project_id, room_id, epoch, seq, at, data } = JSON.parse(body)
  return { id, type, projectId: project_id, roomId: room_id, epoch, seq, at, data }
}
