import { createHmac } from 'node:crypto'
import type { Clock } from '../../shared/clock.ts'
import type { StoredNotice } from './notice.ts'

/** Sends one notice. Resolves to the HTTP status of the answer. Rejects if there is no answer within 10 s, or when `signal` aborts. */
export type PostNotice = (notice: StoredNotice, signal: AbortSignal) => Promise<number>

/** Where notices go. */
interface WebhookOptions {
  readonly url: string
  /** Values of `NOTIFY_SECRET`: `whsec_` and the key in base64. The notice is signed with each. */
  readonly secrets: readonly string[]
  readonly clock: Clock
}

/** Time limit of one attempt, milliseconds. */
export const ATTEMPT_MS = 10_000

const SECRET_PREFIX = 'whsec_'

/** Fails each attempt, so that notices wait, and operators see why. */
export const noUrl: PostNotice = () => Promise.reject(new Error('NOTIFY_URL is not set'))

/** Posts notices to a backend, signed by Standard Webhooks: https://www.standardwebhooks.com */
export function webhook({ url, secrets, clock }: WebhookOptions): PostNotice {
  if (secrets.length === 0)
    throw new TypeError('notifyUrl is set, and notifySecret is not: notices are signed with it')
  const keys = secrets.map((secret) => Buffer.from(secret.slice(SECRET_PREFIX.length), 'base64'))
  return async ({ id, body }, signal) => {
    const timestamp = String(Math.floor(clock.now() / 1000))
    const content = `${id}.${timestamp}.${body}`
    const signatures = keys.map((key) => `v1,${createHmac('sha256', key).update(content).digest('base64')}`)
    const late = new AbortController()
    const cancel = clock.schedule(ATTEMPT_MS, () =>
      late.abort(new Error(`no answer within ${ATTEMPT_MS / 1000} s`)),
    )
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
        // A redirect would turn into a GET, or go where the operator did not say.
        redirect: 'manual',
        signal: AbortSignal.any([signal, late.signal]),
      })
      // The status decides. An unread body would keep the connection.
      await response.body?.cancel()
      return response.status
    } finally {
      cancel()
    }
  }
}

/** 4xx answers that can change. */
const TEMPORARY: ReadonlySet<number> = new Set([408, 425, 429])

/** Result of one attempt. `rejected`: trying again would not help. */
export type Attempt =
  | { readonly is: 'delivered' }
  | { readonly is: 'rejected' | 'failed'; readonly reason: string }

/** Sends a notice once. Never rejects. */
export async function attemptOf(
  post: PostNotice,
  notice: StoredNotice,
  signal: AbortSignal,
): Promise<Attempt> {
  try {
    const status = await post(notice, signal)
    if (status >= 200 && status < 300) return { is: 'delivered' }
    const isFinal = status >= 400 && status < 500 && !TEMPORARY.has(status)
    return { is: isFinal ? 'rejected' : 'failed', reason: `HTTP ${status}` }
  } catch (error) {
    return { is: 'failed', reason: reasonOf(error) }
  }
}

/** Why there was no answer, such as ECONNREFUSED. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'no answer'
  const cause = error.cause as NodeJS.ErrnoException | undefined
  return cause?.code ?? cause?.message ?? error.message
}
