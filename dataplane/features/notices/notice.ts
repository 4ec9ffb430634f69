import type { Clock } from '../../../shared/clock.ts'
import type { Json } from '../../../shared/json.ts'
import type { Logger } from '../../../shared/log.ts'
import { counter, gauge, histogram, type Metrics } from '../../../shared/metrics.ts'
import { notifyKeys, notifySignature } from '../../../shared/notify-keys.ts'
import type { Random } from '../../../shared/random.ts'
import type { Notices, Records, RoomRecords } from '../../../shared/store/port.ts'

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

/** Reads the result of `encodeNotice`. */
export function decodeNotice(bytes: Uint8Array): StoredNotice {
  const text = new TextDecoder().decode(bytes)
  const space = text.indexOf(' ')
  return { id: text.slice(0, space), body: text.slice(space + 1) }
}

/** Results of an attempt to deliver a notice. */
const RESULTS = ['delivered', 'failed', 'dead'] as const

/** Upper bounds in seconds of the ages of delivered notices. */
const AGES = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300, 3600, 86_400]

/** Metrics of the delivery of notices. */
export const NOTICE_METRICS = {
  noticeAttempts: counter(
    'service_notice_attempts_total',
    'Deliveries of notices. failed: roomful tries again. dead: now a dead letter.',
    { result: RESULTS },
  ),
  noticeAge: histogram(
    'service_notice_delivery_seconds',
    'Time from the turn of a notice to its acceptance by the backend.',
    {},
    AGES,
  ),
  noticeOldest: gauge(
    'service_notices_oldest_seconds',
    'Age of the oldest notice that this node sends. 0: none.',
  ),
  deadNoticesDropped: counter(
    'service_dead_notices_dropped_total',
    'Dead letters deleted because the project had 10,000.',
  ),
}

/** A notice on its way to the backend. */
interface OutgoingNotice extends StoredNotice {
  readonly projectId: string
}

/** Answer of the backend to a notice. */
interface NoticeAnswer {
  /** HTTP status. */
  readonly status: number
  /** Time in milliseconds for which the backend asks for no other attempt (`retry-after`). Absent: it does not ask. */
  readonly retryAfterMs?: number
}

/** The backend has not answered within 10 s. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'

  constructor() {
    super(`no answer within ${ATTEMPT_MS / 1000} s`)
  }
}

/** Sends one notice. Rejects with `NoAnswer` if there is none within 10 s, and with another error when `signal` aborts. */
export type PostNotice = (notice: OutgoingNotice, signal: AbortSignal) => Promise<NoticeAnswer>

/** Dependencies of the delivery of notices and of the dead letters. */
export interface NoticeEnvironment {
  readonly store: { readonly notices: Notices; readonly rooms: RoomRecords; readonly records: Records }
  readonly nodeId: string
  /** Resolves to true if another node is alive, as far as this node can tell. */
  readonly isAlive: (nodeId: string) => Promise<boolean>
  readonly clock: Clock
  /** `ms`: milliseconds by which the clock is ahead of the store's. Negative: it is behind. */
  readonly clockOffset: { readonly ms: number }
  readonly random: Random
  readonly log: Logger
  readonly metrics: Metrics<typeof NOTICE_METRICS>
  readonly post: PostNotice
  /** Share of the places for deliveries that a project may use while others have notices, in percent. 0: no bound. */
  readonly projectShare: number
}

/** The backend that receives notices. */
interface WebhookOptions {
  readonly url: string
  /** Values of `NOTIFY_SECRET`. The notice is signed with the key of its project from each. */
  readonly secrets: readonly string[]
  readonly clock: Clock
}

/** Time limit of one attempt, milliseconds. */
export const ATTEMPT_MS = 10_000

/** Fails each attempt, so that notices wait, and operators see why. */
export const noUrl: PostNotice = () => Promise.reject(new Error('NOTIFY_URL is not set'))

/** Posts notices to a backend, signed by Standard Webhooks: https://www.standardwebhooks.com */
export function webhook({ url, secrets, clock }: WebhookOptions): PostNotice {
  if (secrets.length === 0)
    throw new TypeError('notifyUrl is set, and notifySecret is not: notices are signed with it')
  return async ({ projectId, id, body }, signal) => {
    const timestamp = String(Math.floor(clock.now() / 1000))
    const content = `${id}.${timestamp}.${body}`
    const signatures = notifyKeys(secrets, projectId).map((key) => `v1,${notifySignature(key, content)}`)
    const late = new AbortController()
    const cancel = clock.schedule(ATTEMPT_MS, () => late.abort(new NoAnswer()))
    try {
      const response = await fetch(url, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'webhook-id': id,
          'webhook-timestamp': timestamp,
          'webhook-signature': signatures.join(' '),
        },
        body,
        // A followed redirect would become a GET, or go to a server that the operator has not named.
        redirect: 'manual',
        signal: AbortSignal.any([signal, late.signal]),
      })
      // The status decides. An unread body would keep the connection.
      await response.body?.cancel()
      const retryAfterMs = waitOf(response.headers.get('retry-after'), clock.now())
      return { status: response.status, ...(retryAfterMs !== undefined && { retryAfterMs }) }
    } finally {
      cancel()
    }
  }
}

/** Returns the milliseconds of a `retry-after`: seconds, or a date. Undefined: it is absent or neither. */
function waitOf(header: string | null, now: number): number | undefined {
  if (header === null) return undefined
  const ms = /^\d{1,10}$/.test(header) ? Number(header) * 1000 : Date.parse(header) - now
  return ms > 0 ? ms : undefined
}

/** 4xx answers that can change. */
const TEMPORARY: ReadonlySet<number> = new Set([408, 425, 429])

/** Answers whose `retry-after` counts. */
const BUSY: ReadonlySet<number> = new Set([429, 503])

/** Answers of a proxy whose backend cannot be reached. A 503 may come from the backend itself, for one of its projects. */
const UNREACHED: ReadonlySet<number> = new Set([502, 504])

/**
 * Result of one attempt. `rejected`: trying again would not help. `reached`: the backend itself has answered, or needs too long for it. It
 * may be too slow only for some notices.
 */
export type Attempt =
  | { readonly is: 'delivered' }
  | { readonly is: 'rejected'; readonly reason: string }
  | {
      readonly is: 'failed'
      readonly reason: string
      readonly retryAfterMs: number
      readonly reached: boolean
    }

/** Sends a notice once. Never rejects. */
export async function attemptOf(
  post: PostNotice,
  notice: OutgoingNotice,
  signal: AbortSignal,
): Promise<Attempt> {
  try {
    const { status, retryAfterMs = 0 } = await post(notice, signal)
    if (status >= 200 && status < 300) return { is: 'delivered' }
    const reason = `HTTP ${status}`
    if (status >= 400 && status < 500 && !TEMPORARY.has(status)) return { is: 'rejected', reason }
    const delay = BUSY.has(status) ? retryAfterMs : 0
    return { is: 'failed', reason, retryAfterMs: delay, reached: !UNREACHED.has(status) }
  } catch (error) {
    return { is: 'failed', reason: reasonOf(error), retryAfterMs: 0, reached: error instanceof NoAnswer }
  }
}

/** Reason for which there was no answer, such as ECONNREFUSED. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'no answer'
  const cause = error.cause as NodeJS.ErrnoException | undefined
  return cause?.code ?? cause?.message ?? error.message
}
