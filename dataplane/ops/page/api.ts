import type { ClusterNodeDescription, RoomDescription, SessionDescription } from '../../descriptions.ts'
import type { RoomWhereabouts } from '../admin.ts'
import type { ClusterMatches } from '../cluster-search.ts'
import type { Runtime as RuntimeAnswer } from '../runtime.ts'

export type { ClusterMatches, ClusterNodeDescription, RoomDescription, RoomWhereabouts, SessionDescription }

/** What `GET /admin/runtime` answers, read. */
export type Runtime = Omit<RuntimeAnswer, 'rooms' | 'sessions'> & {
  readonly rooms: readonly RoomDescription[]
  readonly sessions: readonly SessionDescription[]
}

const TOKEN = 'roomful.internal_token'
const PATIENCE_MS = 10_000
/** A difference below this is how long answers take, and that they tell whole seconds. */
const LEAST_SKEW_MS = 5000

/** The node answered, but not with what was asked for; `status` is its HTTP status. */
export class Refused extends Error {
  readonly status: number

  constructor(status: number, detail: string) {
    super(detail)
    this.status = status
  }
}

/** The calls of the node this page came from. The token is kept for this tab only. */
export class Api {
  /** How far the node's clock is ahead of this machine's, milliseconds; 0 for what is next to nothing. */
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

  /** How long ago an RFC 3339 time of the node was, milliseconds: by its clock, so that a wrong clock of this machine does not show. */
  age(stamp: string): number {
    return Date.now() + this.aheadMs - Date.parse(stamp)
  }

  /** The answer of `GET /admin/<call>`. Rejects with `Refused`, or with what fetch rejects with when no one answers. */
  get<T>(call: string, query: Record<string, string> = {}): Promise<T> {
    return this.#ask(`${call}?${new URLSearchParams(query)}`, 'GET')
  }

  /** The answer of `POST /admin/<call>`. Rejects as `get` does. */
  post<T>(call: string): Promise<T> {
    return this.#ask(call, 'POST')
  }

  async #ask<T>(call: string, method: string): Promise<T> {
    // A worker's page and calls are below a path of its process.
    const response = await fetch(`${location.pathname.replace(/\/$/, '')}/${call}`, {
      method,
      headers: { 'x-service-internal-token': sessionStorage.getItem(TOKEN) ?? '' },
      cache: 'no-store',
      signal: AbortSignal.timeout(PATIENCE_MS),
    })
    const aheadMs = Date.parse(response.headers.get('date') ?? '') - Date.now()
    if (!Number.isNaN(aheadMs)) this.aheadMs = Math.abs(aheadMs) < LEAST_SKEW_MS ? 0 : aheadMs
    if (response.ok) return response.json()
    const problem = await response.json().catch(() => ({}))
    throw new Refused(response.status, problem.detail ?? `the node answered ${response.status}`)
  }
}
