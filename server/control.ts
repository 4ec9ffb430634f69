import { Backoff } from '../shared/backoff.ts'
import { randomToken } from '../shared/ids.ts'
import type { FieldError, ProblemCode } from '../shared/problem.ts'
import type { Random } from '../shared/random.ts'

/** Error codes of this package. */
export type LocalErrorCode =
  /** Control could not be reached, or did not answer in time; also if a load balancer says so. It may have carried out the request. */
  | 'unreachable'
  /** The answer is not one of roomful's control API. Check `url`. */
  | 'unexpected_answer'

/** All error codes: of the control API, and of this package. */
export type RoomfulErrorCode = ProblemCode | LocalErrorCode

/** Error that every call rejects with. */
export class RoomfulError extends Error {
  /** Always `RoomfulError`. */
  override readonly name = 'RoomfulError'
  /** Error code, for programs. `message` is for developers; of `room_logic_refused`, it is the text of the room. */
  readonly code: RoomfulErrorCode
  /** Status of the HTTP answer. Undefined: there was no answer. */
  readonly status: number | undefined
  /** Fields at fault of an `invalid_request`. */
  readonly errors: readonly FieldError[]
  /** True if the same call, with the same `id`, may succeed later. */
  readonly retryable: boolean

  constructor(
    code: RoomfulErrorCode,
    message: string,
    more: {
      readonly status?: number
      readonly errors?: readonly FieldError[]
      readonly retryable?: boolean
      readonly cause?: unknown
    } = {},
  ) {
    super(message, 'cause' in more ? { cause: more.cause } : undefined)
    this.code = code
    this.status = more.status
    this.errors = more.errors ?? []
    this.retryable = more.retryable ?? false
  }
}

/** Options of `roomful`. */
export interface BackendOptions {
  /** Address of the control API, such as `http://control:3000`. */
  readonly url: string | URL
  /** Id of the project. */
  readonly projectId: string
  /** Secret of an API key of the project, with the scopes that the calls need. Empty: none, which is enough for `npm start` and `roomful dev`. */
  readonly key: string
  /** Milliseconds after which a call rejects, retries included. Default 30,000. */
  readonly timeoutMs?: number
}

/** Dependencies of the calls, in addition to the options. */
export interface BackendParts {
  readonly fetch: typeof fetch
  readonly random: Random
  /** Milliseconds since an arbitrary start. */
  readonly monotonic: () => number
  readonly sleep: (ms: number) => Promise<void>
}

/** A request of the control API. */
export interface ControlRequest {
  /** Parameters of the query. Undefined: left out. */
  readonly query?: Readonly<Record<string, string | number | undefined>>
  /** Body as JSON. Undefined: there is none. */
  readonly body?: unknown
  /** The `idempotency-key` of a change. Undefined: a random one, which covers the attempts of this request. */
  readonly id?: string | undefined
}

/** Characters of a random idempotency key: 126 bits. */
const ID_LENGTH = 21
const DEFAULT_TIMEOUT_MS = 30_000
/** Longer than control takes to answer: it gives up after 12 s. */
const ATTEMPT_MS = 15_000
/** With less time left there is no further attempt: it would end in a timeout, which hides the error before it. */
const LEAST_ATTEMPT_MS = 500
const RETRY_BASE_MS = 100
const RETRY_MAX_MS = 2000
/** Statuses of answers that pass. 408 and 502 come from load balancers, the others also from control. */
const RETRIED = new Set([408, 429, 502, 503, 504])

/** The control API over HTTP. Each request is repeated until there is an answer that stays, or the time is over. */
export class Control {
  readonly #options: BackendOptions
  readonly #parts: BackendParts
  readonly #base: string

  constructor(options: BackendOptions, parts: BackendParts) {
    this.#options = options
    this.#parts = parts
    this.#base = String(options.url).replace(/\/$/, '')
  }

  /** Resolves to the JSON of the answer. `parts` are the parts of the path. Rejects with a `RoomfulError`. */
  async request<Answer>(
    method: 'GET' | 'POST' | 'PUT' | 'DELETE',
    parts: readonly string[],
    { query = {}, body, id }: ControlRequest = {},
  ): Promise<Answer> {
    const { random, monotonic, sleep } = this.#parts
    const deadline = monotonic() + (this.#options.timeoutMs ?? DEFAULT_TIMEOUT_MS)
    const given = Object.entries(query).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, String(value)]],
    )
    const search = given.length > 0 ? `?${new URLSearchParams(given)}` : ''
    const url = `${this.#base}/${parts.map(encodeURIComponent).join('/')}${search}`
    const init = {
      method,
      headers: {
        ...(this.#options.key !== '' && { authorization: `Bearer ${this.#options.key}` }),
        ...(method !== 'GET' && { 'idempotency-key': id ?? randomToken(random, ID_LENGTH) }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    }
    const backoff = new Backoff(random, RETRY_BASE_MS, RETRY_MAX_MS)
    for (;;) {
      const { answer, error, retryAfterMs } = await this.#attempt(url, init, deadline - monotonic())
      if (!error) return answer as Answer
      const waitMs = retryAfterMs + backoff.next()
      if (!error.retryable || monotonic() + waitMs + LEAST_ATTEMPT_MS > deadline) throw error
      await sleep(waitMs)
    }
  }

  async #attempt(url: string, init: RequestInit, leftMs: number): Promise<Attempt> {
    let response: Response
    let text: string
    // Whole milliseconds: Node throws at others.
    const signal = AbortSignal.timeout(Math.ceil(Math.max(0, Math.min(ATTEMPT_MS, leftMs))))
    try {
      response = await this.#parts.fetch(url, { ...init, signal })
      text = await response.text()
    } catch (cause) {
      const message = `control cannot be reached at ${this.#base}: ${reasonOf(cause)}`
      return { error: new RoomfulError('unreachable', message, { retryable: true, cause }), retryAfterMs: 0 }
    }
    const { status, headers } = response
    const answer = parsed(text)
    if (response.ok && answer !== undefined) return { answer, retryAfterMs: 0 }
    const { code, detail, errors } = Object(answer)
    const known = typeof code === 'string' && typeof detail === 'string'
    const retryable = RETRIED.has(status)
    const error = new RoomfulError(
      known ? (code as RoomfulError['code']) : retryable ? 'unreachable' : 'unexpected_answer',
      known ? detail : `${url} answered ${status}, and not as the control API of roomful does`,
      { status, retryable, ...(Array.isArray(errors) && { errors }) },
    )
    return { error, retryAfterMs: 1000 * (Number(headers.get('retry-after')) || 0) }
  }
}

/** Result of one attempt: an answer or an error. */
interface Attempt {
  readonly answer?: unknown
  readonly error?: RoomfulError
  readonly retryAfterMs: number
}

/** `fetch failed` says nothing; its cause does. */
function reasonOf(error: unknown): string {
  const { message, cause } = Object(error)
  const { message: deeper, code } = Object(cause)
  return String(deeper || code || message || error)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
