import type { RoomDescription, SessionDescription } from '../../descriptions.ts'
import type { Runtime as RuntimeAnswer } from '../runtime.ts'

/** The answer of `GET /admin/runtime`, parsed. */
export type Runtime = Omit<RuntimeAnswer, 'rooms' | 'sessions'> & {
  readonly rooms: readonly RoomDescription[]
  readonly sessions: readonly SessionDescription[]
}

const TOKEN = 'roomful.internal_token'
/** A node answers questions sooner. A resend takes up to 5 s, and then up to 10 s of its last notice. */
const TIMEOUT_MS = { question: 10_000, action: 20_000 }
/** A smaller difference of clocks is the time that an answer takes. */
const LEAST_SKEW_MS = 5000

/** The node answered with an error; `status` is its HTTP status. */
export class Refused extends Error {
  readonly status: number

  constructor(status: number, detail: string) {
    super(detail)
    this.status = status
  }
}

/** Calls of the node that served this page. The token stays in this tab. */
export class Api {
  /** Milliseconds that the node's clock is ahead of this machine's; 0 for a small difference. */
  aheadMs = 0

  get hasToken(): boolean {
    return sessionStorage.getItem(TOKEN) !== null
  }

  keepToken(token: string): void {
    sessionStorage.setItem(TOKEN, token)
  }

  /** Moves the token of a link such as `/admin#token=…` from the address to this tab. Returns false if the address has none. */
  takeToken(): boolean {
    const token = new URLSearchParams(location.hash.slice(1)).get('token')
    if (token === null) return false
    this.keepToken(token)
    history.replaceState(null, '', location.pathname)
    return true
  }

  forgetToken(): void {
    sessionStorage.removeItem(TOKEN)
  }

  /** Returns the age of an RFC 3339 time of the node in milliseconds, by the node's clock. */
  age(stamp: string): number {
    return Date.now() + this.aheadMs - Date.parse(stamp)
  }

  /** Returns the answer of `/<call>`. Rejects with `Refused`, or as fetch does if the node does not answer. */
  async ask<T>(call: string, query: Record<string, string> = {}, method = 'GET', body?: object): Promise<T> {
    // A worker's page and calls are below a path of its process.
    const base = location.pathname.replace(/\/admin\/?$/, '')
    const kind = method === 'GET' ? 'question' : 'action'
    const timeoutMs = TIMEOUT_MS[kind]
    const response = await fetch(`${base}/${call}?${new URLSearchParams(query)}`, {
      method,
      headers: {
        'x-service-internal-token': sessionStorage.getItem(TOKEN) ?? '',
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
      cache: 'no-store',
      signal: AbortSignal.timeout(timeoutMs),
    }).catch((error: Error) => {
      if (error.name !== 'TimeoutError') throw error
      const maybe = kind === 'action' ? ' What you asked for may still happen.' : ''
      throw new Error(`The node has not answered within ${timeoutMs / 1000} s.${maybe}`)
    })
    const aheadMs = Date.parse(response.headers.get('date') ?? '') - Date.now()
    if (!Number.isNaN(aheadMs)) this.aheadMs = Math.abs(aheadMs) < LEAST_SKEW_MS ? 0 : aheadMs
    if (response.ok) return response.json()
    const problem = await response.json().catch(() => ({}))
    throw new Refused(response.status, problem.detail ?? `the node answered ${response.status}`)
  }
}
