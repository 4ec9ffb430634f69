const TOKEN = 'roomful.internal_token'
const PATIENCE_MS = 10_000

/** The node answered, but not with what was asked for; `status` is its HTTP status. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail)
    this.status = status
  }
}

/** The calls of the node this page came from. The token is kept for this tab only. */
export class Api {
  #clock

  /** `clock` is told the time of each answer. */
  constructor(clock) {
    this.#clock = clock
  }

  get hasToken() {
    return sessionStorage.getItem(TOKEN) !== null
  }

  keepToken(token) {
    sessionStorage.setItem(TOKEN, token)
  }

  forgetToken() {
    sessionStorage.removeItem(TOKEN)
  }

  /** The answer of `GET /admin/<call>`. Rejects with `Refused`, or with what fetch rejects with when nobody answers. */
  get(call, query = {}) {
    return this.#ask(`/admin/${call}?${new URLSearchParams(query)}`, 'GET')
  }

  /** The answer of `POST /admin/<call>`. Rejects as `get` does. */
  post(call) {
    return this.#ask(`/admin/${call}`, 'POST')
  }

  async #ask(path, method) {
    const response = await fetch(path, {
      method,
      headers: { 'x-service-internal-token': sessionStorage.getItem(TOKEN) ?? '' },
      cache: 'no-store',
      signal: AbortSignal.timeout(PATIENCE_MS),
    })
    this.#clock.hear(response.headers.get('date'))
    if (response.ok) return response.json()
    const problem = await response.json().catch(() => ({}))
    throw new Refused(response.status, problem.detail ?? `the node answered ${response.status}`)
  }
}
