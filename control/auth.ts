import { createHash, timingSafeEqual } from 'node:crypto'
import type { MiddlewareHandler } from 'hono'
import type { Clock } from '../shared/clock.ts'
import { InternalToken } from '../shared/http-server.ts'
import { isOriginHere, namesThisMachine } from '../shared/origins.ts'
import { Problem } from '../shared/problem.ts'
import { type KeyRecord, type Keys, keyStatus, looksLikeSecret } from './keys.ts'
import type { ProjectRecord, Projects } from './projects.ts'

/** The caller of a request. `id` names it in logs, limits and idempotency, and reveals no secret. */
export type Caller =
  | { readonly kind: 'operator'; readonly id: string }
  | {
      readonly kind: 'key'
      readonly id: string
      readonly key: KeyRecord
      /** The project in the path of the request. Undefined: the path has none, or there is no such project. */
      readonly project: ProjectRecord | undefined
    }

const sha256 = (text: string): Buffer => createHash('sha256').update(text).digest()

/** Authenticates callers. Secrets are compared in constant time. */
export class Authentication {
  readonly #operators: readonly { readonly digest: Buffer; readonly id: string }[]
  readonly #internal: InternalToken
  readonly #keys: Keys
  readonly #projects: Projects
  readonly #clock: Clock

  constructor(options: {
    /** Empty: the API is open, and a request without a credential counts as one of an operator. */
    readonly operatorTokens: readonly string[]
    readonly internalToken: string | undefined
    readonly keys: Keys
    readonly projects: Projects
    readonly clock: Clock
  }) {
    this.#operators = options.operatorTokens.map(sha256).map((digest) => ({
      digest,
      id: `operator:${sha256(digest.toString('hex')).toString('hex').slice(0, 12)}`,
    }))
    this.#internal = new InternalToken(options.internalToken)
    this.#keys = options.keys
    this.#projects = options.projects
    this.#clock = options.clock
  }

  /**
   * Returns the caller of an `authorization` header. `projectId`: from the path of the request. Rejects with a `Problem`: unauthenticated,
   * or key_revoked.
   */
  async caller(authorization: string | undefined, projectId: string | undefined): Promise<Caller> {
    const credential = /^Bearer +(\S+) *$/i.exec(authorization ?? '')?.[1]
    if (credential !== undefined && looksLikeSecret(credential)) return this.#keyCaller(credential, projectId)
    if (this.#operators.length === 0 && authorization === undefined) return { kind: 'operator', id: 'open' }
    if (credential === undefined)
      throw unauthenticated(
        authorization === undefined
          ? 'The request has no authorization header; send Authorization: Bearer <credential>.'
          : 'The authorization header is not of the form Bearer <credential>.',
      )
    const given = sha256(credential)
    const [match] = this.#operators.filter(({ digest }) => timingSafeEqual(digest, given))
    if (!match) throw unauthenticated('The credential is neither an operator token nor a key’s secret.')
    return { kind: 'operator', id: match.id }
  }

  /** Checks an internal token. Throws a `Problem` (unauthenticated) for a wrong one, and for every token if none is configured. */
  internal(token: string | undefined): void {
    if (this.#internal.accepts(token)) return
    throw new Problem('unauthenticated', 'This path needs a valid x-service-internal-token header.')
  }

  /** Reads the key and the project in one round trip. */
  async #keyCaller(secret: string, projectId: string | undefined): Promise<Caller> {
    const [key, project] = await Promise.all([
      this.#keys.findBySecret(secret),
      projectId === undefined ? undefined : this.#projects.find(projectId),
    ])
    if (!key) throw unauthenticated('No key has this secret.', { isAbsence: true })
    if (keyStatus(key, this.#clock.now()) === 'revoked')
      throw new Problem('key_revoked', `The key ${key.id} was revoked.`)
    return { kind: 'key', id: key.id, key, project }
  }
}

/** Throws a `Problem` (forbidden) if the caller is a key of another project. */
export function requireProject(caller: Caller, projectId: string): void {
  if (caller.kind === 'key' && caller.key.project_id !== projectId)
    throw new Problem('forbidden', `A key’s secret is valid only for its project, not for ${projectId}.`)
}

/** Throws a `Problem` (forbidden) if the caller is a key. */
export function requireOperator(caller: Caller): void {
  if (caller.kind === 'key')
    throw new Problem('forbidden', 'This needs an operator token; a key’s secret is not enough.')
}

/** Throws a `Problem` (missing_scope) if the key does not have the scope. */
export function requireScope(key: KeyRecord, scope: string): void {
  if (!key.scopes.includes(scope))
    throw new Problem('missing_scope', `The key ${key.id} does not have the scope ${scope}.`)
}

const unauthenticated = (detail: string, more: { readonly isAbsence?: boolean } = {}): Problem =>
  new Problem('unauthenticated', detail, {
    headers: { 'www-authenticate': 'Bearer realm="roomful control"' },
    ...more,
  })

/** Callers of a control API that needs no credential. */
export type OpenTo = 'this machine' | 'everyone'

/**
 * Protects an open control API from web pages of other origins: any page can make the browser of this machine send requests. Throws a
 * `Problem` (cross_origin) for a request of such a page. If the API is open to this machine only, also for a request with another host: with
 * DNS rebinding, the host name of a foreign page resolves to 127.0.0.1.
 */
export function requireSameMachine(headers: Headers, openTo: OpenTo): void {
  const host = headers.get('host')
  // Every browser sends a host. Health checks of load balancers may use HTTP/1.0 without one.
  if (openTo === 'this machine' && host !== null && !namesThisMachine(host))
    throw refused(`names the host ${shown(host)}, not this machine, such as localhost or 127.0.0.1`)
  const origin = headers.get('origin')
  if (origin !== null && !isOriginHere(origin) && origin.replace(/^https?:\/\//i, '') !== host)
    throw refused(`comes from a page of ${shown(origin)}`)
  // Requests with an allowed origin may be cross-site: for a browser, localhost and 127.0.0.1 are two sites.
  if (origin === null && headers.get('sec-fetch-site') === 'cross-site')
    throw refused('comes from a page of another site')
}

const shown = (text: string): string => JSON.stringify(text.slice(0, 100))

const refused = (why: string): Problem =>
  new Problem(
    'cross_origin',
    `The request ${why}. Without operator tokens (CONTROL_API_TOKENS) the API is open, but not for such requests.`,
  )

/** Request headers of the admin page. Without the header of the internal token, a page cannot call `/internal`. */
const PREFLIGHT = {
  'access-control-allow-methods': 'GET, POST, PUT, DELETE',
  'access-control-allow-headers': 'authorization, content-type',
  'access-control-max-age': '600',
}

/**
 * Lets the admin pages of nodes call the API from a browser (CORS): pages at the `ADMIN_URL` of a living node, and pages of this machine,
 * where a tunnel to a node may end. While the API is open, a page of this machine must be at the port of an `ADMIN_URL`, because no token
 * keeps other pages out. A browser gives other pages no answer. Answers are never cached, so they need no `vary`.
 */
export function allowAdminPages(
  /** Origins of the admin pages of living nodes. */
  adminPages: () => Promise<readonly string[]>,
  isOpen: boolean,
): MiddlewareHandler {
  const isAllowed = async (origin: string): Promise<boolean> => {
    if (!isOriginHere(origin)) return (await adminPages()).includes(origin)
    return !isOpen || (await adminPages()).some((page) => portOf(page) === portOf(origin))
  }
  return async (c, next) => {
    const origin = c.req.header('origin')
    if (origin === undefined || !(await isAllowed(origin))) return next()
    const allowed = { 'access-control-allow-origin': origin }
    if (c.req.method === 'OPTIONS' && c.req.header('access-control-request-method') !== undefined)
      return c.body(null, 204, { ...allowed, ...PREFLIGHT })
    await next()
    c.res.headers.set('access-control-allow-origin', origin)
  }
}

/** Returns the scheme and the port of an origin. */
const portOf = (origin: string): string => origin.match(/^[^:]+:|:\d+$/g)?.join('') ?? ''
