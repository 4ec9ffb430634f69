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

/** Length of the key of a webhook, by Standard Webhooks. */
const MIN_KEY_BYTES = 24
const MAX_KEY_BYTES = 64
/** Maximum difference between the time of the request and the clock here, seconds. */
const TOLERANCE_S = 300

/**
 * Returns the notice in a request to your `NOTIFY_URL`. Rejects with `InvalidNotice` if the signature is wrong, or if the request was sent more than
 * five minutes ago. `notifyKey`: the notify key of your project, from `roomful admin notify-key`. `R`: the room types that send notices, as `typeof duel`. The body of the request
 * must not be read before.
 */
export async function verifyNotice<R extends TypedRoom = TypedRoom>(
  request: Request,
  notifyKey: string,
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
  const keys = await Promise.all(notifyKey.split(',').map(importKey))
  const given = signatures.split(' ').flatMap((signature) => {
    const bytes = signature.startsWith('v1,') ? bytesOf(signature.slice('v1,'.length)) : undefined
    return bytes ? [bytes] : []
  })
  for (const key of keys)
    for (const signature of given)
      if (await crypto.subtle.verify('HMAC', key, signature, content))
        return readNotice(id, body) as NoticeOf<R>
  throw new InvalidNotice('webhook-signature is not a signature of this request with your notify key')
}

function headerOf(request: Request, name: string): string {
  const value = request.headers.get(name)
  if (value) return value
  throw new InvalidNotice(`the request has no header ${name}`)
}

async function importKey(text: string): Promise<CryptoKey> {
  const [, base64 = ''] = /^whsec_(.*)$/.exec(text.trim()) ?? []
  const key = bytesOf(base64)
  if (key === undefined || key.length < MIN_KEY_BYTES || key.length > MAX_KEY_BYTES)
    throw new InvalidNotice(
      'the notify key is not whsec_ and 24 to 64 bytes in base64: use the output of roomful admin notify-key',
    )
  return crypto.subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify'])
}

/** Returns the bytes of a text in base64. Undefined: it is not base64. */
function bytesOf(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))
  } catch {
    return undefined
  }
}

/**
 * Reads the body of a notice.
 * @internal
 */
export function readNotice(id: string, body: string): Notice {
  const { type, project_id, room_id, epoch, seq, at, data } = JSON.parse(body)
  return { id, type, projectId: project_id, roomId: room_id, epoch, seq, at, data }
}
