import * as v from 'valibot'
import { InternalToken } from '../../shared/internal-token.ts'

/** What control says about a key: the answer of `GET /internal/key-status`. */
export interface KeyStatus {
  readonly exists: boolean
  readonly status: 'active' | 'retiring' | 'revoked'
  /** PASERK `k4.public.…`; tokens of the key carry its signature. */
  readonly public_key: string
}

/** An answer that names no key. */
export interface NoSuchKey {
  readonly exists: false
}

/** Asks about a key; `key_id` undefined: the project's built-in pair. Rejects when nobody can say at the moment. */
export type AskKeyStatus = (projectId: string, keyId: string | undefined) => Promise<KeyStatus | NoSuchKey>

/**
 * Why control has not said what it knows about a key: it cannot be reached or has a fault of its own, it does not take this node for one
 * (`INTERNAL_TOKEN`), or it was not asked since this node asks too much already.
 */
export type KeyStatusFault = 'unreachable' | 'refused' | 'busy'

/** Control could not be asked about a key; the text says why. */
export class KeyStatusUnavailable extends Error {
  override readonly name = 'KeyStatusUnavailable'
  readonly fault: KeyStatusFault

  constructor(fault: KeyStatusFault, message: string, options?: ErrorOptions) {
    super(message, options)
    this.fault = fault
  }
}

const Answer = v.union([
  v.object({ exists: v.literal(false) }),
  v.object({
    exists: v.literal(true),
    status: v.picklist(['active', 'retiring', 'revoked']),
    public_key: v.string(),
  }),
])

/** Where control is, and what it knows a node by. */
export interface ControlAddress {
  readonly controlUrl: string
  readonly internalToken: string | undefined
  /** How long control may take to answer. */
  readonly timeoutMs: number
}

/** Answers that say something about this node, or about the moment: not authenticated, not allowed, timed out, too many requests. */
const NOT_ABOUT_THE_KEY: ReadonlySet<number> = new Set([401, 403, 408, 429])

/** Asks control over HTTP. */
export function askControl({ controlUrl, internalToken, timeoutMs }: ControlAddress): AskKeyStatus {
  const { shown } = new InternalToken(internalToken)
  return async (projectId, keyId) => {
    const url = new URL('internal/key-status', controlUrl.endsWith('/') ? controlUrl : `${controlUrl}/`)
    url.searchParams.set('project_id', projectId)
    if (keyId !== undefined) url.searchParams.set('key_id', keyId)
    let answer: unknown
    try {
      const response = await fetch(url, {
        headers: shown === undefined ? {} : { 'x-service-internal-token': shown },
        signal: AbortSignal.timeout(timeoutMs),
      })
      const { status } = response
      if (!response.ok) {
        await response.body?.cancel()
        // What control will not even read is the name of no key, whenever it is asked.
        if (status >= 400 && status < 500 && !NOT_ABOUT_THE_KEY.has(status)) return { exists: false }
        const fault = status === 401 || status === 403 ? 'refused' : 'unreachable'
        throw new KeyStatusUnavailable(fault, `control answered ${status}`)
      }
      answer = await response.json()
    } catch (error) {
      if (error instanceof KeyStatusUnavailable) throw error
      throw new KeyStatusUnavailable('unreachable', `control did not answer: ${reasonOf(error)}`, {
        cause: error,
      })
    }
    const parsed = v.safeParse(Answer, answer)
    if (!parsed.success)
      throw new KeyStatusUnavailable('unreachable', 'control answered something else than a key status')
    return parsed.output
  }
}

/** fetch hides why it failed in `cause`. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const cause = error.cause as { code?: string } | undefined
  return cause?.code ?? error.message
}
