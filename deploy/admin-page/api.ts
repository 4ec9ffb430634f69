/** Calls of the node that served the page, and of control. */

const TOKEN = 'roomful.internal_token'
/**
 * Timeouts. A node answers questions sooner. A resend takes up to 5 s, and then up to 10 s for its last notice. The owner of a room answers within
 * 10 s, and control within 12 s. Deleting takes longer, but has no button.
 */
const TIMEOUT_MS = { question: 10_000, action: 20_000 }
const MAYBE = 'What you asked for may still happen.'
/** A smaller clock difference is due to the duration of the answer. */
const LEAST_SKEW_MS = 5000

/** The answer is an error, or control cannot be called. `status`: the HTTP status, or 0. */
export class Refused extends Error {
  readonly status: number

  constructor(status: number, detail: string) {
    super(detail)
    this.status = status
  }
}

/** Sends a request, with `body` as JSON. Rejects as `fetch` does. */
const send = (
  url: string,
  timeoutMs: number,
  { headers, ...init }: RequestInit,
  body?: object,
): Promise<Response> =>
  fetch(url, {
    ...init,
    headers: { ...headers, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
    cache: 'no-store',
    signal: AbortSignal.timeout(timeoutMs),
  })

/** Returns the JSON of an answer. Rejects with `Refused` for an error, with its problem as a sentence. */
async function read<T>(response: Response, who: string): Promise<T> {
  const answer = await response.json().catch(() => ({}))
  if (response.ok) return answer
  const { detail = `${who} answered ${response.status}.`, errors = [] } = answer as {
    readonly detail?: string
    readonly errors?: readonly { readonly path: string; readonly message: string }[]
  }
  const fields = errors.map(({ path, message }) => `${path} ${message}`)
  throw new Refused(response.status, [detail, ...fields].join(' '))
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
    const isQuestion = method === 'GET'
    const timeoutMs = isQuestion ? TIMEOUT_MS.question : TIMEOUT_MS.action
    const headers = { 'x-service-internal-token': sessionStorage.getItem(TOKEN) ?? '' }
    const url = `${base}/${call}?${new URLSearchParams(query)}`
    const response = await send(url, timeoutMs, { method, headers }, body).catch((error: Error) => {
      if (error.name !== 'TimeoutError') throw error
      throw new Error(
        `The node has not answered within ${timeoutMs / 1000} s.${isQuestion ? '' : ` ${MAYBE}`}`,
      )
    })
    const aheadMs = Date.parse(response.headers.get('date') ?? '') - Date.now()
    if (!Number.isNaN(aheadMs)) this.aheadMs = Math.abs(aheadMs) < LEAST_SKEW_MS ? 0 : aheadMs
    return read(response, 'It')
  }
}

const NO_TOKEN = 'Control needs an operator token: one of its CONTROL_API_TOKENS.'
const WRONG_TOKEN =
  'Control does not accept this token. It must be one of CONTROL_API_TOKENS of control; leave it empty if control has none.'
const isLoopback = ({ hostname }: URL): boolean => hostname === 'localhost' || hostname === '127.0.0.1'

/** Calls of the control API. The operator token is in memory only: a reload forgets it. */
export class Control {
  /** The address that the node has. */
  readonly #home = document.getElementById('page')!.dataset.control ?? ''
  #url = this.#home
  #token = ''
  #isAccepted = false

  /** Address of the control API. */
  get url(): string {
    return this.#url
  }

  /** True: control has accepted the page's token. */
  get isOpen(): boolean {
    return this.#isAccepted
  }

  /** Uses this token and address for the next calls. Throws a `Refused` for an address to which the page cannot connect. */
  open(token: string, address: string): void {
    const url = URL.canParse(address) ? new URL(address) : undefined
    const { origin } = new URL(this.#home)
    if (!url || (url.origin !== origin && !(url.protocol === 'http:' && isLoopback(url))))
      throw new Refused(
        0,
        `This page can connect to control at ${origin}, or through a tunnel at http://localhost:… or http://127.0.0.1:…, not at ${address}.`,
      )
    this.#url = address.replace(/\/$/, '')
    this.#token = token
  }

  forget(): void {
    this.#token = ''
    this.#isAccepted = false
  }

  /** Resolves with the answer. Rejects with a `Refused` whose message says what was wrong. `path`: parts between slashes. */
  async ask<T = unknown>(
    method: string,
    path: readonly string[],
    { query, body }: { readonly query?: Record<string, string>; readonly body?: object } = {},
  ): Promise<T> {
    const search = query ? `?${new URLSearchParams(query)}` : ''
    const url = `${this.#url}/${path.map(encodeURIComponent).join('/')}${search}`
    const headers: HeadersInit = this.#token === '' ? {} : { authorization: `Bearer ${this.#token}` }
    const init: RequestInit = { method, headers, credentials: 'omit', redirect: 'error' }
    const response = await send(url, TIMEOUT_MS.action, init, body).catch((error: Error) => {
      throw new Refused(0, error.name === 'TimeoutError' ? LATE : this.#unreachable)
    })
    if (response.status === 401) {
      const hadToken = this.#token !== ''
      this.forget()
      throw new Refused(401, hadToken ? WRONG_TOKEN : NO_TOKEN)
    }
    const answer = await read<T>(response, 'Control')
    this.#isAccepted = true
    return answer
  }

  get #unreachable(): string {
    return `No answer from control at ${this.#url}. Either this browser cannot reach that address, or control does not allow this page: it allows the pages of nodes at their ADMIN_URL, and pages at localhost (without operator tokens only at the port of an ADMIN_URL). This page is at ${location.origin}. The command roomful admin needs no browser.`
  }
}

const LATE = `Control has not answered within ${TIMEOUT_MS.action / 1000} s. ${MAYBE}`
