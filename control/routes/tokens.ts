import { type Clock, timestamp } from '../../shared/clock.ts'
import type { JsonObject } from '../../shared/json.ts'
import { Problem } from '../../shared/problem.ts'
import type { RateLimits } from '../../shared/rate-limit.ts'
import { issueToken, MAX_TOKEN_LENGTH, type SigningKey, type TokenClaims } from '../../shared/tokens.ts'
import type { Span, TraceContext } from '../../shared/tracing/tracer.ts'
import { invalid } from '../../shared/validate.ts'
import { type Caller, requireProject, requireScope } from '../auth.ts'
import type { Endpoints } from '../endpoint.ts'
import type { Keyring, StoredPair } from '../keyring.ts'
import { type KeyRecord, type Keys, keyStatus, MINT_SCOPE } from '../keys.ts'
import type { ControlMetrics } from '../metrics.ts'
import type { ProjectRecord, Projects } from '../projects.ts'
import { IssuedToken, IssueToken } from '../schemas.ts'

/** `POST /tokens`. */
export function tokenRoutes(
  endpoints: Endpoints,
  parts: {
    keys: Keys
    projects: Projects
    keyring: Keyring
    limits: RateLimits
    clock: Clock
    metrics: ControlMetrics
    requireKeyId: boolean
  },
): void {
  const { keys, projects, keyring, limits, clock, metrics } = parts

  endpoints.mount(
    {
      method: 'POST',
      path: '/tokens',
      tag: 'Tokens',
      summary: 'Issue a client token',
      description:
        'Signed with the pair of key_id and dead when that key is; without key_id with the caller’s own key, or else with the project’s built-in pair. Hand it to the player’s session; keep it short-lived.',
      access: 'caller',
      body: IssueToken,
      answer: { status: 200, description: 'The token and what it says.', schema: IssuedToken },
      problems: ['missing_scope', 'project_not_found', 'project_disabled', 'key_not_found', 'rate_limited'],
    },
    async ({ caller, body, span }) => {
      limit(caller)
      requireProject(caller, body.project_id)
      const project = await projects.requireEnabled(body.project_id)
      const { pair, keyId } = await signerOf(caller, project, body.key_id)
      const now = clock.now()
      const claims: TokenClaims = {
        project_id: body.project_id,
        issued_at: timestamp(now),
        expires_at: timestamp(now + body.ttl_seconds * 1000),
        ...(keyId !== undefined && { key_id: keyId }),
        ...(body.aud !== undefined && { aud: body.aud }),
        ...(body.sub !== undefined && { sub: body.sub }),
        ...(body.data !== undefined && { data: body.data as JsonObject }),
        ...(body.rooms !== undefined && { rooms: body.rooms }),
      }
      span.set({ 'roomful.project_id': body.project_id, 'roomful.key_id': keyId })
      const issued = await issueTraced(await keyring.signingKey(pair), claims, span)
      if (issued.token.length > MAX_TOKEN_LENGTH) throw tooLong(issued.token.length)
      metrics.tokensIssued.inc({ signed_with: keyId === undefined ? 'project' : 'key' })
      return issued
    },
  )

  function limit(caller: Caller): void {
    const allowed = limits.of(caller.id)
    if (allowed.take()) return
    const headers = { 'retry-after': String(Math.max(1, Math.ceil(allowed.waitMs / 1000))) }
    throw new Problem('rate_limited', 'This caller asks for tokens too fast.', { headers })
  }

  async function signerOf(
    caller: Caller,
    project: ProjectRecord,
    keyId: string | undefined,
  ): Promise<{ pair: StoredPair; keyId?: string }> {
    if (caller.kind === 'key') return signer(await ownKey(caller.key, keyId))
    if (keyId !== undefined) return signer(await namedKey(project.id, keyId))
    if (parts.requireKeyId)
      throw invalid([{ path: 'key_id', message: 'is required: this service issues no token without a key' }])
    return { pair: project.pair }
  }

  async function namedKey(projectId: string, keyId: string): Promise<KeyRecord> {
    const key = await keys.find(projectId, keyId)
    if (key) return key
    throw keyNotFound(projectId, keyId)
  }

  /** A key signs for itself only: a token under a sibling would outlive the revocation of the key that asked for it. */
  async function ownKey(own: KeyRecord, keyId: string | undefined): Promise<KeyRecord> {
    if (keyId === undefined || keyId === own.id) return own
    if (!(await keys.find(own.project_id, keyId))) throw keyNotFound(own.project_id, keyId)
    throw new Problem('forbidden', `The key ${own.id} issues tokens under itself only, not under ${keyId}.`)
  }

  function signer(key: KeyRecord): { pair: StoredPair; keyId: string } {
    if (keyStatus(key, clock.now()) === 'revoked')
      throw new Problem('key_revoked', `The key ${key.id} was revoked.`)
    requireScope(key, MINT_SCOPE)
    return { pair: key.pair, keyId: key.id }
  }
}

interface Issued {
  readonly token: string
  readonly claims: TokenClaims
}

/**
 * A token that carries the trace on to the client that uses it, if the trace is recorded, and the token is not too long with it: what others
 * have noted about the trace is left out first, then the trace.
 */
async function issueTraced(key: SigningKey, claims: TokenClaims, span: Span): Promise<Issued> {
  const { traceparent, tracestate } = span
  const contexts: TraceContext[] = [{}]
  if (span.sampled && traceparent !== undefined) {
    contexts.unshift({ traceparent })
    if (tracestate !== undefined) contexts.unshift({ traceparent, tracestate })
  }
  let issued: Issued | undefined
  for (const context of contexts) {
    const traced = { ...claims, ...context } as TokenClaims
    issued = { token: await issueToken(key, traced), claims: traced }
    if (issued.token.length <= MAX_TOKEN_LENGTH) break
  }
  return issued!
}

const keyNotFound = (projectId: string, keyId: string): Problem =>
  new Problem('key_not_found', `The project ${projectId} has no key ${keyId}.`)

const tooLong = (length: number): Problem =>
  invalid([
    {
      path: 'rooms',
      message: `makes the token ${length} characters long; ${MAX_TOKEN_LENGTH} is the most. Name fewer rooms`,
    },
  ])
