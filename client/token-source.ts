import type { Clock } from '../shared/clock.ts'
import type { JsonObject } from '../shared/json.ts'
import { RoomfulError } from './errors.ts'
import { isHere, lanSecret } from './lan.ts'
import type { Report } from './listeners.ts'

/** Time after which a `getToken` without an answer is called again, if the server still needs a token. */
const PATIENCE_MS = 10_000

/** Tokens from the game's backend. */
interface BackendTokens {
  /** Project of the token. Default: the project that the token names. Required for a JWT of your own login that names no project. */
  readonly projectId?: string
  /** Token from `POST /tokens`. Or a JWT of your own login, if the server accepts it. */
  readonly token?: string
  /** Returns a token from the game's backend. Called for each new session, and before the current token expires. */
  readonly getToken?: () => Promise<string> | string
  readonly dev?: undefined
}

/**
 * Options for development. Only `npm start` and `roomful dev` accept them, from clients on the same machine, and with `--lan` from other
 * devices.
 */
export interface DevTokens {
  /** The player: the `sub` of the token, or `sub` and `data`. Room code reads them as `member.sub` and `member.data`. */
  readonly dev: string | { readonly sub: string; readonly data?: JsonObject }
  readonly projectId?: undefined
  readonly token?: undefined
  readonly getToken?: undefined
}

/** Options for the client's tokens. */
export type TokenOptions = BackendTokens | DevTokens

/** The client's tokens. While the client is connected, the server requests a fresh one before the current one expires. */
export class TokenSource {
  readonly #projectId: string | undefined
  readonly #getToken: TokenOptions['getToken']
  readonly #clock: Clock
  readonly #report: Report
  #token: string | undefined
  #used = false
  /** Until then, a pending `getToken` answers all requests of the server (monotonic clock). */
  #pendingUntil = 0
  /** Fresh token that waits for a connection. */
  #fresh: string | undefined
  #send: ((token: string) => void) | undefined

  /** `url`: address of the node, which also issues the tokens of the option `dev`. */
  constructor(
    url: string,
    { projectId, token, getToken, dev }: TokenOptions,
    parts: { clock: Clock; report: Report },
  ) {
    this.#projectId = projectId
    this.#token = token
    this.#getToken = dev === undefined ? getToken : () => this.#devToken(url, dev)
    this.#clock = parts.clock
    this.#report = parts.report
  }

  /** Project of the current token. Empty if neither the options nor the token name one. */
  get projectId(): string {
    return this.#projectId ?? String(claimsOf(this.#token ?? '')?.project_id ?? '')
  }

  /** True if the client can fetch another token. */
  get renewable(): boolean {
    return this.#getToken !== undefined
  }

  /** Returns a token for a new session. Throws a RoomfulError (token_unavailable). */
  next(): Promise<string> {
    return this.#token !== undefined && (!this.#used || !this.#getToken)
      ? this.#take('token', () => this.#token)
      : this.fetch()
  }

  /** Fetches a token. Throws a RoomfulError (token_unavailable). */
  async fetch(): Promise<string> {
    if (this.#getToken) return this.#take('getToken', this.#getToken)
    throw unavailable('connect needs token, getToken or dev.')
  }

  /** The client is connected: `send` gets the fresh tokens that the server has requested, also on an earlier connection. */
  start(send: (token: string) => void): void {
    this.#send = send
    this.#deliver()
  }

  /** The connection has ended. */
  stop(): void {
    this.#send = undefined
  }

  /** The server requests a fresh token. One token answers all requests that arrive while it is fetched. */
  async requested(): Promise<void> {
    const now = this.#clock.monotonic()
    if (!this.#getToken || now < this.#pendingUntil) return
    this.#pendingUntil = now + PATIENCE_MS
    try {
      this.#fresh = await this.fetch()
      this.#deliver()
    } catch (error) {
      // The server asks again.
      this.#report(error)
    }
    this.#pendingUntil = 0
  }

  #deliver(): void {
    if (!this.#send || this.#fresh === undefined) return
    this.#send(this.#fresh)
    this.#fresh = undefined
  }

  /** Returns the token that the option `name` gives. Throws a RoomfulError. */
  async #take(name: string, give: () => unknown): Promise<string> {
    try {
      const token = unwrapped(await give())
      if (typeof token !== 'string') throw token ?? `it is ${token}`
      this.#token = token
      this.#used = true
      if (this.projectId === '')
        throw unavailable('The token names no project: give projectId, or a token of roomful.')
      return token
    } catch (cause) {
      if (cause instanceof RoomfulError) throw cause
      const answer = cause instanceof Response ? unwrapped(await cause.text()) : cause
      throw unavailable(`${name} failed: ${textOf(answer)}`, { retryable: true, cause })
    }
  }

  async #devToken(url: string, dev: DevTokens['dev']): Promise<string> {
    const address = new URL('/dev/token', url.replace(/^ws/, 'http'))
    const player = typeof dev === 'string' ? { sub: dev } : dev
    // Without a content type, so that a browser sends it to another port without asking first.
    const body = JSON.stringify({ ...player, lan: lanSecret() })
    const response = await fetch(address, { method: 'POST', body }).catch((cause: unknown) => {
      const page = globalThis.location
      if (page && isHere(address.origin) && !isHere(page.origin))
        throw notDev(
          `${address.origin} answers only pages of localhost, not ${page.origin}: other devices need \`--lan\``,
        )
      throw notDev(`nothing answers at ${address.origin}`, { retryable: true, cause })
    })
    const { token, detail } = (await response.json().catch(() => ({}))) as Record<string, string>
    if (token !== undefined) return token
    if (response.status === 404 || detail === undefined) throw notDev(`${address.origin} is something else`)
    // A wrong name, or a wrong secret of `--lan`. Another attempt would fail, too.
    if (response.status < 500) throw unavailable(detail)
    throw new Error(detail)
  }
}

const unavailable = (message: string, options?: { retryable?: boolean; cause?: unknown }): RoomfulError =>
  new RoomfulError('token_unavailable', message, options)

const notDev = (what: string, options?: { retryable?: boolean; cause?: unknown }): RoomfulError =>
  new RoomfulError('connection_failed', `\`dev\` needs \`roomful dev\`, and ${what}.`, options)

/** Returns a backend's answer, parsed if it is JSON. Throws a RoomfulError (token_unavailable) if the answer contains a token. */
function unwrapped(given: unknown): unknown {
  let answer = given
  try {
    if (typeof given === 'string' && given[0] === '{') answer = JSON.parse(given)
  } catch {
    // Not JSON: the text itself.
  }
  if (Object(answer).token === undefined) return answer
  throw unavailable('The token is a whole answer: pass `answer.token`.')
}

/** Returns the text of an error, or of an answer that reports one. */
function textOf(answer: unknown): string {
  const { detail, message, error } = Object(answer)
  return String(detail ?? message ?? error ?? answer)
}

/** Bytes of an Ed25519 signature, which follows the claims in a PASETO v4.public. */
const SIGNATURE_BYTES = 64
const HEADER = 'v4.public.'

/** Returns the player's id (`sub`) in a token, without verification. Null: the token has none. Undefined: the token cannot be read. */
export function tokenSub(token: string): string | null | undefined {
  const claims = claimsOf(token)
  return claims && (claims.sub === undefined ? null : String(claims.sub))
}

function claimsOf(token: string): Record<string, unknown> | undefined {
  const paseto = token.startsWith(HEADER)
  try {
    const payload = token.split('.')[paseto ? 2 : 1]!
    const binary = atob(payload.replaceAll('-', '+').replaceAll('_', '/'))
    const bytes = Uint8Array.from(binary, (c) => c.charCodeAt(0))
    const claims = paseto ? bytes.subarray(0, -SIGNATURE_BYTES) : bytes
    return JSON.parse(new TextDecoder().decode(claims)) as Record<string, unknown>
  } catch {
    // The token is in another format.
    return undefined
  }
}
