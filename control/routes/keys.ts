import { timestamp } from '../../shared/clock.ts'
import type { JsonObject } from '../../shared/json.ts'
import { Problem, storeDataLost } from '../../shared/problem.ts'
import { issueToken, MAX_TOKEN_LENGTH, type SigningKey, type TokenClaims } from '../../shared/tokens.ts'
import type { Span, TraceContext } from '../../shared/tracing/tracer.ts'
import { invalid } from '../../shared/validate.ts'
import { type Caller, requireProject, requireScope } from '../auth.ts'
import type { Endpoints, Services } from '../endpoint.ts'
import type { StoredPair } from '../keyring.ts'
import {
  type KeyDraft,
  type KeyRecord,
  type KeyStatus,
  keyStatus,
  keyView,
  MINT_SCOPE,
  noKey,
} from '../keys.ts'
import type { ProjectRecord } from '../projects.ts'
import {
  CreateKey,
  encodeCursor,
  IssuedToken,
  IssueToken,
  Key,
  KeyPage,
  KeyStatusAnswer,
  KeyStatusQuery,
  KeyWithSecret,
  Nothing,
  PageQuery,
  RotateKey,
} from '../schemas.ts'

/** `/projects/:id/keys` and everything below it. */
export function keyRoutes(
  endpoints: Endpoints,
  { keys, projects, idempotency, clock, metrics, log }: Services,
): void {
  const planOf = ({ key, secret, writes }: KeyDraft) => ({
    writes,
    answer: { ...keyView(key, clock.now()), secret },
  })

  endpoints.mount(
    {
      method: 'POST',
      path: '/projects/:id/keys',
      tag: 'Keys',
      summary: 'Create a key',
      description:
        'The secret in the answer is the credential of the key. It is shown only once, because only its hash is stored.',
      access: 'operator',
      body: CreateKey,
      idempotent: '24 hours',
      answer: { status: 201, description: 'The key, with its secret.', schema: KeyWithSecret },
      problems: ['project_not_found', 'conflict'],
    },
    async (call) => {
      const { params, body } = call
      const projectId = params.id!
      await projects.require(projectId)
      const wish = { name: body.name ?? null, scopes: [...new Set(body.scopes)] }
      const { answer, replayed } = await idempotency.run(call, async () =>
        planOf(await keys.draft(projectId, wish)),
      )
      if (!replayed) metrics.keyChanges.inc({ change: 'created' })
      return answer
    },
  )

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects/:id/keys',
      tag: 'Keys',
      summary: 'List the keys of a project',
      description:
        'Newest first, in pages, without secrets. A key’s secret may read the keys of its project.',
      access: 'caller',
      query: PageQuery,
      answer: { status: 200, description: 'One page of keys.', schema: KeyPage },
      problems: ['project_not_found'],
    },
    async ({ caller, params, query }) => {
      const projectId = params.id!
      requireProject(caller, projectId)
      await projects.require(projectId)
      const now = clock.now()
      const { keys: found, next } = await keys.page(projectId, { limit: query.limit, before: query.cursor })
      return { keys: found.map((key) => keyView(key, now)), next_cursor: encodeCursor(next) }
    },
  )

  endpoints.mount(
    {
      method: 'POST',
      path: '/projects/:id/keys/:keyId/revoke',
      tag: 'Keys',
      summary: 'Revoke a key',
      description:
        'All sessions with the key are closed (4003) on every node within a second and cannot resume. A second revocation changes nothing.',
      access: 'operator',
      body: Nothing,
      answer: { status: 200, description: 'The key, revoked.', schema: Key },
      problems: ['project_not_found', 'key_not_found'],
    },
    async ({ params }) => {
      const projectId = params.id!
      await projects.require(projectId)
      const key = await keys.revoke(projectId, params.keyId!)
      metrics.keyChanges.inc({ change: 'revoked' })
      log.info({ project_id: projectId, key_id: key.id }, 'key revoked')
      return keyView(key, clock.now())
    },
  )

  endpoints.mount(
    {
      method: 'POST',
      path: '/projects/:id/keys/:keyId/rotate',
      tag: 'Keys',
      summary: 'Rotate a key',
      description:
        'Creates a new key with the same name and scopes. The old key is retiring and stays valid for grace_seconds. Then it is revoked.',
      access: 'operator',
      body: RotateKey,
      idempotent: '24 hours',
      answer: { status: 201, description: 'The new key, with its secret.', schema: KeyWithSecret },
      problems: ['project_not_found', 'key_not_found', 'conflict'],
    },
    async (call) => {
      const { params, body } = call
      const projectId = params.id!
      const oldId = params.keyId!
      await projects.require(projectId)
      const { answer, replayed } = await idempotency.run(call, async () =>
        planOf(await keys.draftRotation(projectId, oldId, body.grace_seconds * 1000)),
      )
      if (!replayed) metrics.keyChanges.inc({ change: 'rotated' })
      log.info({ project_id: projectId, key_id: oldId, new_key_id: answer.id, replayed }, 'key rotated')
      await announceRotation(projectId, oldId)
      return answer
    },
  )

  /** A failure of the bus must not cost the caller the answer: the rotation is stored, and only this answer has the secret. Nodes check keys again anyway. */
  async function announceRotation(projectId: string, keyId: string): Promise<void> {
    try {
      const old = await keys.find(projectId, keyId)
      if (old) await keys.announce(projectId, keyId, keyStatus(old, clock.now()))
    } catch (error) {
      log.warn(
        { err: error, project_id: projectId, key_id: keyId },
        'a rotation could not be announced to the nodes',
      )
    }
  }
}

/** `POST /tokens`. */
export function tokenRoutes(
  endpoints: Endpoints,
  { keys, projects, keyring, tokenLimits, clock, metrics, requireKeyId }: Services,
): void {
  endpoints.mount(
    {
      method: 'POST',
      path: '/tokens',
      tag: 'Tokens',
      summary: 'Issue a client token',
      description:
        'The pair of key_id signs the token, and its revocation ends the token. Without key_id: the key of the caller, otherwise the project’s built-in pair. Pass the token to the player’s client, and keep its lifetime short.',
      access: 'caller',
      body: IssueToken,
      answer: { status: 200, description: 'The token and its claims.', schema: IssuedToken },
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
    const allowed = tokenLimits.of(caller.id)
    if (allowed.take()) return
    const headers = { 'retry-after': String(Math.max(1, Math.ceil(allowed.waitMs() / 1000))) }
    throw new Problem('rate_limited', 'This caller requests tokens too fast.', { headers })
  }

  async function signerOf(
    caller: Caller,
    project: ProjectRecord,
    keyId: string | undefined,
  ): Promise<{ pair: StoredPair; keyId?: string }> {
    if (caller.kind === 'key') return signer(await ownKey(caller.key, keyId))
    if (keyId !== undefined) return signer(await namedKey(project.id, keyId))
    if (requireKeyId)
      throw invalid([{ path: 'key_id', message: 'is required: this service issues no token without a key' }])
    return { pair: project.pair }
  }

  async function namedKey(projectId: string, keyId: string): Promise<KeyRecord> {
    const key = await keys.find(projectId, keyId)
    if (key) return key
    throw noKey(projectId, keyId)
  }

  /** A key issues only tokens of itself. A token of a sibling key would outlive the revocation of the key that requested it. */
  async function ownKey(own: KeyRecord, keyId: string | undefined): Promise<KeyRecord> {
    if (keyId === undefined || keyId === own.id) return own
    if (!(await keys.find(own.project_id, keyId))) throw noKey(own.project_id, keyId)
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
 * Issues a token that continues a recorded trace in the client that uses the token. If the token would be too long, it omits the tracestate
 * first, and then the trace.
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

const tooLong = (length: number): Problem =>
  invalid([
    {
      path: 'rooms',
      message: `makes a token of ${length} characters; limit: ${MAX_TOKEN_LENGTH}. Name fewer rooms`,
    },
  ])

/** Answer of `GET /internal/key-status`. */
interface KeyStatusBody {
  readonly project_id: string
  readonly key_id: string | null
  readonly exists: boolean
  readonly status: KeyStatus | null
  readonly revoked: boolean
  readonly revoked_at: string | null
  readonly scopes: readonly string[]
  readonly public_key: string | null
  /** True: the project accepts no players. */
  readonly project_disabled: boolean
}

/** `GET /internal/key-status`, with which nodes check keys. */
export function internalRoutes(endpoints: Endpoints, { keys, projects, clock, dataLost }: Services): void {
  endpoints.mount(
    {
      method: 'GET',
      path: '/internal/key-status',
      tag: 'Internal',
      summary: 'Status of a key',
      description:
        'For nodes. The answer for an unknown key is 200 with exists false, or 503 while the store has lost its data. Without key_id: the project’s built-in pair.',
      access: 'internal',
      query: KeyStatusQuery,
      answer: { status: 200, description: 'The status.', schema: KeyStatusAnswer },
      problems: [],
    },
    ({ query: { project_id: projectId, key_id: keyId } }) =>
      keyId === undefined ? builtInStatus(projectId) : statusOf(projectId, keyId),
  )

  async function statusOf(projectId: string, keyId: string): Promise<KeyStatusBody> {
    const [key, project] = await Promise.all([keys.find(projectId, keyId), projects.find(projectId)])
    if (!key || !project) return await absent(projectId, keyId, project)
    const { status, revoked_at: revokedAt, scopes } = keyView(key, clock.now())
    const revoked = status === 'revoked'
    const { public_key: publicKey } = key.pair
    return {
      project_id: projectId,
      key_id: keyId,
      exists: true,
      status,
      revoked,
      revoked_at: revokedAt,
      scopes,
      public_key: publicKey,
      project_disabled: project.disabled_at !== null,
    }
  }

  async function builtInStatus(projectId: string): Promise<KeyStatusBody> {
    const project = await projects.find(projectId)
    if (!project) return await absent(projectId, null)
    return {
      project_id: projectId,
      key_id: null,
      exists: true,
      status: 'active',
      revoked: false,
      revoked_at: null,
      scopes: [MINT_SCOPE],
      public_key: project.pair.public_key,
      project_disabled: project.disabled_at !== null,
    }
  }

  /** Nodes finally close the sessions of a key that does not exist. After a loss of data, a backup may restore the key. */
  async function absent(
    projectId: string,
    keyId: string | null,
    project?: ProjectRecord,
  ): Promise<KeyStatusBody> {
    if (await dataLost()) throw storeDataLost()
    return {
      project_id: projectId,
      key_id: keyId,
      exists: false,
      status: null,
      revoked: false,
      revoked_at: null,
      scopes: [],
      public_key: null,
      project_disabled: project ? project.disabled_at !== null : await projects.wasDeleted(projectId),
    }
  }
}
