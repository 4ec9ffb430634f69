import * as v from 'valibot'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import * as schemas from '../control/schemas.ts'
import { importVerifyKey, isSigned, readToken, requireClaims } from '../shared/tokens.ts'
import { CONTROL_ROUTES } from './authorisation/matrix.ts'
import { ControlUnderTest, expectProblem, INTERNAL, OPERATOR, type Request } from './support/control-api.ts'

interface Operation {
  readonly requestBody?: Content
  readonly responses: Readonly<Record<string, Content>>
  readonly 'x-code-samples'?: readonly { readonly source: string }[]
}

interface Content {
  readonly content: Readonly<Record<string, { readonly example?: unknown }>>
}

/** Returns true if an operation has a request to copy, an example of its body, and an example of each answer. */
function isShown({ requestBody, responses, 'x-code-samples': samples }: Operation): boolean {
  const hasExample = ({ content }: Content) =>
    Object.values(content).every(({ example }) => example !== undefined)
  return samples !== undefined && [requestBody ?? [], ...Object.values(responses)].flat().every(hasExample)
}

describe('the control API', () => {
  const control = new ControlUnderTest()
  const { clock } = control
  const api = (line: string, request?: Request) => control.call(line, request)

  beforeAll(() => control.start())
  afterAll(() => control.close())

  describe('projects', () => {
    it('are created', async () => {
      const answer = await api('POST /projects', { body: { name: 'Käfer & Söhne' } })
      expect(answer.status).toBe(201)
      expect(answer.body).toEqual({
        id: expect.stringMatching(/^prj_[\w-]{16,}$/),
        name: 'Käfer & Söhne',
        created_at: new Date(clock.now()).toISOString(),
        disabled_at: null,
      })
    })

    it('are read and renamed', async () => {
      const id = await control.newProject('before')
      const renamed = await api(`PATCH /projects/${id}`, { body: { name: 'after' } })
      expect(renamed.body).toMatchObject({ id, name: 'after', disabled_at: null })
      expect((await api(`GET /projects/${id}`)).body).toEqual(renamed.body)
      expectProblem(await api(`PATCH /projects/${id}`, { body: { name: '' } }), 400, 'invalid_request')
      expectProblem(await api('GET /projects/prj_none'), 404, 'project_not_found')
    })

    it('get no token while they are disabled, and each key status says so to nodes', async () => {
      const id = await control.newProject()
      const key = await control.newKey(id)
      const { heard, end } = await control.hearKeys()
      const since = new Date(clock.now()).toISOString()
      expect((await api(`POST /projects/${id}/disable`)).body).toMatchObject({ id, disabled_at: since })
      clock.advance(1000)
      expect((await api(`POST /projects/${id}/disable`)).body).toMatchObject({ disabled_at: since })
      for (const as of [OPERATOR, key.secret]) {
        const refused = await api('POST /tokens', { body: { project_id: id }, as })
        expectProblem(refused, 403, 'project_disabled')
      }
      for (const keyId of [undefined, key.id])
        expect(await control.statusOf(id, keyId)).toMatchObject({ status: 'active', project_disabled: true })
      expect((await api(`POST /projects/${id}/enable`)).body).toMatchObject({ disabled_at: null })
      expect(await control.statusOf(id)).toMatchObject({ project_disabled: false })
      expect((await api('POST /tokens', { body: { project_id: id }, as: key.secret })).status).toBe(200)
      await end()
      expect(heard).toEqual([true, true, false].map((disabled) => ({ project_id: id, disabled })))
    })

    it('are listed newest first, page by page, each once', async () => {
      const made: string[] = []
      for (let at = 0; at < 5; at++) made.push(await control.newProject(`listed ${at}`))
      const first = await api('GET /projects?limit=2')
      expect(first.body.projects.map(({ id }: { id: string }) => id)).toEqual([made[4], made[3]])
      const second = await api(`GET /projects?limit=3&cursor=${first.body.next_cursor}`)
      expect(second.body.projects.map(({ id }: { id: string }) => id)).toEqual([made[2], made[1], made[0]])
      const all: string[] = []
      let cursor: string | null = ''
      while (cursor !== null) {
        const { body } = await api(`GET /projects?limit=2${cursor && `&cursor=${cursor}`}`)
        all.push(...body.projects.map(({ id }: { id: string }) => id))
        cursor = body.next_cursor
      }
      expect(new Set(all).size).toBe(all.length)
      expect((await api('GET /projects')).body.projects.map(({ id }: { id: string }) => id)).toEqual(all)
    })

    it.each([
      'limit=0',
      'limit=201',
      'limit=ten',
      'limit=1.5',
      'limit=-1',
      'limit=',
      'cursor=nonsense',
      'cursor=',
    ])('are not listed by %s', async (query) => {
      const answer = await api(`GET /projects?${query}`)
      expectProblem(answer, 400, 'invalid_request')
      expect(answer.body.errors[0].path).toBe(query.split('=')[0])
    })
  })

  describe('keys', () => {
    it('are created with a secret that no later answer shows', async () => {
      const projectId = await control.newProject()
      const created = await api(`POST /projects/${projectId}/keys`, {
        body: { name: 'backend', scopes: ['token:mint', 'reports:read'] },
      })
      expect(created.status).toBe(201)
      const { secret, ...key } = created.body
      expect(key).toEqual({
        id: expect.stringMatching(/^key_[\w-]{16,}$/),
        project_id: projectId,
        name: 'backend',
        scopes: ['token:mint', 'reports:read'],
        status: 'active',
        created_at: new Date(clock.now()).toISOString(),
        retires_at: null,
        revoked_at: null,
        rotated_from: null,
      })
      expect(secret.length).toBeGreaterThan(40)
      const listed = await api(`GET /projects/${projectId}/keys`)
      expect(listed).toMatchObject({ status: 200, body: { keys: [key] } })
      expect(listed.body.keys[0]).not.toHaveProperty('secret')
    })

    it('are created without a body, with the scope token:mint and no name', async () => {
      const answer = await api(`POST /projects/${await control.newProject()}/keys`)
      expect(answer.status).toBe(201)
      expect(answer.body).toMatchObject({ name: null, scopes: ['token:mint'] })
    })

    it('are created once for one idempotency-key, and a repeated call returns the secret again', async () => {
      const projectId = await control.newProject()
      const headers = { 'idempotency-key': 'the same for every project' }
      const create = (body: object) => api(`POST /projects/${projectId}/keys`, { body, headers })
      const first = await create({ name: 'one' })
      expect((await create({ name: 'one' })).body).toEqual(first.body)
      expectProblem(await create({ name: 'two' }), 409, 'conflict')
      expect((await api(`GET /projects/${projectId}/keys`)).body.keys).toHaveLength(1)
      const issued = await api('POST /tokens', { as: first.body.secret, body: { project_id: projectId } })
      expect(issued.status).toBe(200)
      const project = () => api('POST /projects', { body: { name: 'once' }, headers })
      expect((await project()).body).toEqual((await project()).body)
    })

    it('are revoked immediately and once, and each call announces it', async () => {
      const projectId = await control.newProject()
      const key = await control.newKey(projectId)
      const { heard, end } = await control.hearKeys()
      const revoked = await api(`POST /projects/${projectId}/keys/${key.id}/revoke`)
      expect(revoked).toMatchObject({ status: 200, body: { id: key.id, status: 'revoked' } })
      expect(revoked.body.revoked_at).toBe(new Date(clock.now()).toISOString())
      clock.advance(5000)
      const again = await api(`POST /projects/${projectId}/keys/${key.id}/revoke`, { body: {} })
      expect(again).toMatchObject({ status: 200, body: revoked.body })
      const announced = { project_id: projectId, key_id: key.id, status: 'revoked' }
      await expect.poll(() => heard).toEqual([announced, announced])
      await end()

      expectProblem(
        await api('POST /tokens', { body: { project_id: projectId, key_id: key.id } }),
        403,
        'key_revoked',
      )
    })

    it('are rotated: the old key is valid until its grace ends', async () => {
      const projectId = await control.newProject()
      const old = await control.newKey(projectId, { name: 'shop', scopes: ['token:mint', 'x'] })
      const { heard, end } = await control.hearKeys()
      const rotated = await api(`POST /projects/${projectId}/keys/${old.id}/rotate`, {
        body: { grace_seconds: 60 },
      })
      expect(rotated.status).toBe(201)
      expect(rotated.body).toMatchObject({
        name: 'shop',
        scopes: ['token:mint', 'x'],
        status: 'active',
        rotated_from: old.id,
        secret: expect.any(String),
      })
      await expect.poll(() => heard).toEqual([{ project_id: projectId, key_id: old.id, status: 'retiring' }])
      await end()

      const retiresAt = new Date(clock.now() + 60_000).toISOString()
      const shown = async () => (await api(`GET /projects/${projectId}/keys`)).body.keys[1]
      expect(await shown()).toMatchObject({
        id: old.id,
        status: 'retiring',
        retires_at: retiresAt,
        revoked_at: null,
      })
      expect((await api('POST /tokens', { as: old.secret, body: { project_id: projectId } })).status).toBe(
        200,
      )
      expectProblem(await api(`POST /projects/${projectId}/keys/${old.id}/rotate`), 409, 'conflict')
      clock.advance(59_999)
      expect(await control.statusOf(projectId, old.id)).toMatchObject({ status: 'retiring', revoked: false })
      clock.advance(1)
      expect(await shown()).toMatchObject({ status: 'revoked', retires_at: retiresAt, revoked_at: retiresAt })
      expect(await control.statusOf(projectId, old.id)).toMatchObject({
        status: 'revoked',
        revoked: true,
        revoked_at: retiresAt,
      })
      expectProblem(
        await api('POST /tokens', { as: old.secret, body: { project_id: projectId } }),
        403,
        'key_revoked',
      )
      expectProblem(await api(`POST /projects/${projectId}/keys/${old.id}/rotate`), 409, 'conflict')
      expect(
        (await api('POST /tokens', { as: rotated.body.secret, body: { project_id: projectId } })).status,
      ).toBe(200)
    })

    it('are listed page by page, newest first', async () => {
      const projectId = await control.newProject()
      const made: string[] = []
      for (let i = 0; i < 3; i++) made.unshift((await control.newKey(projectId)).id)
      const ids = (body: { keys: { id: string }[] }) => body.keys.map(({ id }) => id)
      const first = await api(`GET /projects/${projectId}/keys?limit=2`)
      expect(ids(first.body)).toEqual(made.slice(0, 2))
      const second = await api(`GET /projects/${projectId}/keys?limit=2&cursor=${first.body.next_cursor}`)
      expect(ids(second.body)).toEqual(made.slice(2))
      expect(second.body.next_cursor).toBeNull()
      expectProblem(await api(`GET /projects/${projectId}/keys?limit=0`), 400, 'invalid_request')
    })

    it('are rotated with a grace of an hour by default, and without a grace', async () => {
      const projectId = await control.newProject()
      const [first, second] = [await control.newKey(projectId), await control.newKey(projectId)]
      await api(`POST /projects/${projectId}/keys/${first.id}/rotate`)
      expect(await control.statusOf(projectId, first.id)).toMatchObject({ status: 'retiring' })
      clock.advance(3_600_000)
      expect(await control.statusOf(projectId, first.id)).toMatchObject({ status: 'revoked' })
      await api(`POST /projects/${projectId}/keys/${second.id}/rotate`, { body: { grace_seconds: 0 } })
      expect(await control.statusOf(projectId, second.id)).toMatchObject({
        status: 'revoked',
        revoked: true,
      })
    })

    it('are revoked while they retire', async () => {
      const projectId = await control.newProject()
      const key = await control.newKey(projectId)
      await api(`POST /projects/${projectId}/keys/${key.id}/rotate`)
      const revoked = await api(`POST /projects/${projectId}/keys/${key.id}/revoke`)
      expect(revoked.body).toMatchObject({
        status: 'revoked',
        revoked_at: new Date(clock.now()).toISOString(),
      })
    })

    it('have one successor after concurrent rotations', async () => {
      const projectId = await control.newProject()
      const key = await control.newKey(projectId)
      const many = await Promise.all(
        Array.from({ length: 6 }, () => api(`POST /projects/${projectId}/keys/${key.id}/rotate`)),
      )
      expect(many.map(({ status }) => status).sort()).toEqual([201, 409, 409, 409, 409, 409])
      expect((await api(`GET /projects/${projectId}/keys`)).body.keys).toHaveLength(2)
    })

    it.each([-1, 604_801, 1.5, '60'])('are not rotated with a grace of %j', async (graceSeconds) => {
      const projectId = await control.newProject()
      const key = await control.newKey(projectId)
      const answer = await api(`POST /projects/${projectId}/keys/${key.id}/rotate`, {
        body: { grace_seconds: graceSeconds },
      })
      expectProblem(answer, 400, 'invalid_request')
      expect(answer.body.errors[0].path).toBe('grace_seconds')
    })

    it('are found only in their own project', async () => {
      const [mine, other] = [await control.newProject(), await control.newProject()]
      const key = await control.newKey(other)
      for (const move of ['revoke', 'rotate']) {
        expectProblem(await api(`POST /projects/${mine}/keys/${key.id}/${move}`), 404, 'key_not_found')
        expectProblem(await api(`POST /projects/${mine}/keys/key_nobody/${move}`), 404, 'key_not_found')
        expectProblem(await api(`POST /projects/prj_nobody/keys/${key.id}/${move}`), 404, 'project_not_found')
      }
      expectProblem(await api('POST /projects/prj_nobody/keys'), 404, 'project_not_found')
      expectProblem(await api('GET /projects/prj_nobody/keys'), 404, 'project_not_found')
      expect(await control.statusOf(other, key.id)).toMatchObject({ status: 'active' })
    })
  })

  describe('tokens', () => {
    /** Verifies a token like a node, with the public key from control. Returns its claims. */
    const verified = async (token: string, projectId: string) => {
      const unverified = readToken(token)
      const { claims } = unverified
      const { public_key: publicKey } = await control.statusOf(projectId, claims.key_id)
      expect(isSigned(unverified, await importVerifyKey(publicKey))).toBe(true)
      requireClaims(claims, { project_id: projectId, now: clock.now() })
      return claims
    }

    it('are signed with the requested key', async () => {
      const projectId = await control.newProject()
      const key = await control.newKey(projectId)
      const wish = {
        project_id: projectId,
        key_id: key.id,
        ttl_seconds: 60,
        aud: 'game',
        sub: 'player-7',
        data: { level: 3, tags: ['vip', '🎲'] },
        rooms: ['arena', 'chess:9'],
      }
      const answer = await api('POST /tokens', { body: wish })
      expect(answer.status).toBe(200)
      const { ttl_seconds: ttlSeconds, ...claims } = wish
      expect(answer.body).toEqual({
        token: expect.stringMatching(/^v4\.public\./),
        claims: {
          ...claims,
          issued_at: new Date(clock.now()).toISOString(),
          expires_at: new Date(clock.now() + ttlSeconds * 1000).toISOString(),
        },
      })
      expect(await verified(answer.body.token, projectId)).toEqual(answer.body.claims)
    })

    it('are signed with the caller’s own key when the caller is one', async () => {
      const projectId = await control.newProject()
      const key = await control.newKey(projectId)
      const answer = await api('POST /tokens', { as: key.secret, body: { project_id: projectId } })
      expect(answer.body.claims).toEqual({
        project_id: projectId,
        key_id: key.id,
        issued_at: new Date(clock.now()).toISOString(),
        expires_at: new Date(clock.now() + 300_000).toISOString(),
      })
      expect(await verified(answer.body.token, projectId)).toEqual(answer.body.claims)
    })

    it('are signed with the project’s built-in pair by default, and then name no key', async () => {
      const projectId = await control.newProject()
      const answer = await api('POST /tokens', { body: { project_id: projectId } })
      expect(answer.body.claims).not.toHaveProperty('key_id')
      expect(await verified(answer.body.token, projectId)).toEqual(answer.body.claims)
    })

    it('are issued only for the project of the credential', async () => {
      const [mine, other] = [await control.newProject(), await control.newProject()]
      const [key, sibling, stranger] = [
        await control.newKey(mine),
        await control.newKey(mine),
        await control.newKey(other),
      ]
      const ask = (body: object) => api('POST /tokens', { as: key.secret, body })
      expectProblem(await ask({ project_id: other }), 403, 'forbidden')
      expectProblem(await ask({ project_id: 'prj_nobody' }), 403, 'forbidden')
      expectProblem(await ask({ project_id: mine, key_id: stranger.id }), 404, 'key_not_found')
      expectProblem(await ask({ project_id: mine, key_id: sibling.id }), 403, 'forbidden')
      expect((await ask({ project_id: mine, key_id: key.id })).status).toBe(200)
    })

    it('are not issued for unknown projects and keys', async () => {
      const [mine, other] = [await control.newProject(), await control.newProject()]
      const stranger = await control.newKey(other)
      const ask = (body: object) => api('POST /tokens', { body })
      expectProblem(await ask({ project_id: 'prj_nobody' }), 404, 'project_not_found')
      expectProblem(await ask({ project_id: 'prj_nobody', key_id: stranger.id }), 404, 'project_not_found')
      expectProblem(await ask({ project_id: mine, key_id: stranger.id }), 404, 'key_not_found')
      expectProblem(await ask({ project_id: mine, key_id: 'key_nobody' }), 404, 'key_not_found')
    })

    it('are not issued under a key without the scope', async () => {
      const projectId = await control.newProject()
      const key = await control.newKey(projectId, { scopes: ['reports:read'] })
      expectProblem(
        await api('POST /tokens', { body: { project_id: projectId, key_id: key.id } }),
        403,
        'missing_scope',
      )
    })

    it.each([
      ['ttl_seconds', 9],
      ['key_id', 7],
      ['key_id', ''],
      ['project_id', null],
      ['sub', ''],
      ['aud', 'x'.repeat(257)],
      ['data', 'vip'],
      ['data', []],
      ['data', { text: 'x'.repeat(2049 - '{"text":""}'.length) }],
      ['rooms', 'arena'],
      ['rooms.0', ['']],
      ['rooms.1', ['arena', 'chess:']],
      ['rooms', Array.from({ length: 65 }, (_, at) => `room${at}`)],
      ['rooms', Array.from({ length: 64 }, (_, at) => `arena:${'🎲'.repeat(120)}${at}`)],
      ['claims', {}],
    ])('are not issued when %s is %j', async (path, value) => {
      const projectId = await control.newProject()
      const answer = await api('POST /tokens', {
        body: { project_id: projectId, [path.split('.')[0]!]: value },
      })
      expectProblem(answer, 400, 'invalid_request')
      expect(answer.body.errors).toEqual([{ path, message: expect.any(String) }])
    })
  })

  describe('every answer', () => {
    it('is for each of the operators', async () => {
      expect((await api('GET /projects', { as: 'another-operator-token' })).status).toBe(200)
    })

    it('has the request id of the caller if it is valid, and else a new one', async () => {
      const own = await api('GET /healthz', { headers: { 'x-request-id': 'trace-1.a:b' } })
      expect(own.headers.get('x-request-id')).toBe('trace-1.a:b')
      for (const bad of ['has space', 'x'.repeat(129), '<script>']) {
        const answer = await api('GET /nothing', { headers: { 'x-request-id': bad } })
        expect(answer.body.request_id).toMatch(/^req_/)
      }
    })

    it('is 400 or 415 for bodies that are not JSON objects', async () => {
      const send = (body: string, headers = {}) => api('POST /projects', { body, headers })
      for (const body of ['{"name":', '[]', '"text"', 'null', '7', '{"name":"\u0000'])
        expectProblem(await send(body), 400, 'invalid_request')
      for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/jsonp'])
        expectProblem(await send('{"name":"a"}', { 'content-type': type }), 415, 'unsupported_media_type')
      expect((await send('{"name":"a"}', { 'content-type': 'application/json; charset=utf-8' })).status).toBe(
        201,
      )
      expectProblem(await api('POST /projects'), 400, 'invalid_request')
    })

    it('needs no content type in a request without a body, like that of curl -X POST', async () => {
      const mine = await control.newProject()
      const { id } = await control.newKey(mine)
      const post = (path: string, init: RequestInit = {}) =>
        fetch(`${control.url}${path}`, {
          method: 'POST',
          headers: { authorization: `Bearer ${OPERATOR}` },
          ...init,
        })
      expect((await post(`/projects/${mine}/keys/${id}/revoke`)).status).toBe(200)
      const body = new Blob(['{}'])
      expect((await post(`/projects/${mine}/keys/${id}/revoke`, { body })).status).toBe(415)
      expect((await post('/projects')).status).toBe(400)
    })

    it('is 413 for bodies above 64 KiB, with and without a content length', async () => {
      const name = 'x'.repeat(64 * 1024)
      expectProblem(await api('POST /projects', { body: { name } }), 413, 'payload_too_large')
      const response = await fetch(`${control.url}/projects`, {
        method: 'POST',
        headers: { authorization: `Bearer ${OPERATOR}`, 'content-type': 'application/json' },
        body: new Blob([JSON.stringify({ name })]).stream(),
        duplex: 'half',
      } as RequestInit)
      expect(response.status).toBe(413)
      expect((await api('POST /projects', { body: { name: 'x'.repeat(65_000) } })).status).toBe(400)
      expect((await api('GET /healthz')).status).toBe(200)
    })

    it('is 404 for an unknown path, and 405 with the allowed methods for a wrong method', async () => {
      for (const line of ['GET /', 'GET /projects/', 'POST /nothing', 'GET /projects/a/b/c', 'GET /internal'])
        expectProblem(await api(line), 404, 'not_found')
      const allowed = [
        ['DELETE /projects', 'GET, HEAD, POST'],
        ['PUT /tokens', 'POST'],
        ['GET /tokens', 'POST'],
        ['OPTIONS /projects/prj_a/keys', 'GET, HEAD, POST'],
        ['PATCH /projects/prj_a/keys/key_a/rotate', 'POST'],
        ['POST /healthz', 'GET, HEAD'],
      ]
      for (const [line, allow] of allowed) {
        const answer = await api(line!)
        expectProblem(answer, 405, 'method_not_allowed')
        expect(answer.headers.get('allow')).toBe(allow)
      }
    })

    it('forbids caches, and access by pages of other origins', async () => {
      const answer = await api('GET /projects', { headers: { origin: 'https://game.example' } })
      expect(answer.headers.get('cache-control')).toBe('no-store')
      expect(answer.headers.has('access-control-allow-origin')).toBe(false)
    })
  })

  describe('GET /internal/key-status', () => {
    it('returns the status, the scopes and the public key', async () => {
      const projectId = await control.newProject()
      const key = await control.newKey(projectId, { scopes: ['token:mint', 'x'] })
      expect(await control.statusOf(projectId, key.id)).toEqual({
        project_id: projectId,
        key_id: key.id,
        exists: true,
        status: 'active',
        revoked: false,
        revoked_at: null,
        scopes: ['token:mint', 'x'],
        public_key: expect.stringMatching(/^k4\.public\./),
        project_disabled: false,
      })
      await api(`POST /projects/${projectId}/keys/${key.id}/revoke`)
      const revokedAt = new Date(clock.now()).toISOString()
      expect(await control.statusOf(projectId, key.id)).toMatchObject({
        status: 'revoked',
        revoked: true,
        revoked_at: revokedAt,
      })
    })

    it('returns the built-in pair without key_id', async () => {
      expect(await control.statusOf(await control.newProject())).toMatchObject({
        key_id: null,
        status: 'active',
        scopes: ['token:mint'],
        public_key: expect.stringMatching(/^k4\.public\./),
      })
    })

    it('returns exists: false for an unknown key or project, and for a key of another project', async () => {
      const [mine, other] = [await control.newProject(), await control.newProject()]
      const key = await control.newKey(other)
      const absent = {
        exists: false,
        status: null,
        revoked: false,
        revoked_at: null,
        scopes: [],
        public_key: null,
        project_disabled: false,
      }
      const unknown = [
        [mine, 'key_nobody'],
        [mine, key.id],
        ['prj_nobody', undefined],
      ] as const
      for (const [projectId, keyId] of unknown)
        expect(await control.statusOf(projectId, keyId)).toEqual({
          project_id: projectId,
          key_id: keyId ?? null,
          ...absent,
        })
    })
  })

  describe('operations', () => {
    const openCall = (line: string) => api(line, { as: null })

    it('count requests by route, without names that callers choose', async () => {
      const projectId = await control.newProject()
      await api(`GET /projects/${projectId}/keys`)
      const { headers, body } = await openCall('GET /metrics')
      expect(headers.get('content-type')).toMatch(/^text\/plain/)
      expect(body).toContain(
        'service_http_requests_total{method="GET",route="/projects/:id/keys",status="200"}',
      )
      expect(body).not.toContain(projectId)
    })

    it('describe every call of the API', async () => {
      const { body } = await openCall('GET /openapi.json')
      const calls = Object.entries(body.paths as Record<string, object>).flatMap(([path, item]) =>
        Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`),
      )
      // The script of the page is no call.
      const routes = CONTROL_ROUTES.filter((route) => !route.endsWith('.js')).map((route) =>
        route.replaceAll(/:(\w+)/g, '{$1}'),
      )
      expect(calls.sort()).toEqual(routes.sort())
      const wish = body.paths['/tokens'].post.requestBody.content['application/json'].schema
      expect(wish.properties.ttl_seconds).toMatchObject({
        type: 'integer',
        minimum: 10,
        maximum: 86_400,
        default: 300,
      })
      expect(wish).toMatchObject({ required: ['project_id'], additionalProperties: false })
    })

    it('show each call with a request to copy, an example body and an example of its answer', async () => {
      const { body } = await openCall('GET /openapi.json')
      const missing = Object.entries(body.paths as Record<string, Record<string, Operation>>).flatMap(
        ([path, item]) =>
          Object.entries(item)
            .filter(([, operation]) => !isShown(operation))
            .map(([method]) => `${method} ${path}`),
      )
      expect(missing).toEqual([])
    })

    it('have examples that their schemas accept', () => {
      const examples = Object.entries(schemas as Record<string, unknown>)
        .filter((entry): entry is [string, v.GenericSchema] => 'kind' in Object(entry[1]))
        .flatMap(([name, schema]) =>
          v.getExamples(schema).map((example: unknown) => ({ name, schema, example })),
        )
      expect(examples.length).toBeGreaterThan(30)
      for (const { name, schema, example } of examples)
        expect(
          v.safeParse(schema, example).issues?.map(({ message }) => message),
          name,
        ).toBeUndefined()
    })

    it('have requests to copy that the API accepts', async () => {
      const { body } = await openCall('GET /openapi.json')
      const samples = Object.values(body.paths as Record<string, Record<string, Operation>>)
        .flatMap((item) => Object.values(item).map((operation) => operation['x-code-samples']![0]!.source))
        // It would turn the log of the tests on.
        .filter((sample) => !sample.includes('/admin/log-level'))
      for (const sample of samples) {
        const [, method = 'GET', path] = /^curl (?:-X (\w+) )?"\$CONTROL_URL([^"]*)"/.exec(sample)!
        const headers = [...sample.matchAll(/-H "([^:]+): ([^"]+)"/g)].map(([, name, value]) => [
          name!,
          value!.replace('$INTERNAL_TOKEN', INTERNAL).replace(/\$\w+/, OPERATOR),
        ])
        const data = /-d '(.*)'$/.exec(sample)?.[1]
        const request = { method, headers: Object.fromEntries(headers), ...(data && { body: data }) }
        const answer = await fetch(control.url + path, request)
        const text = await answer.text()
        // The project of the examples does not exist.
        if (!answer.ok) expect(JSON.parse(text), sample).toMatchObject({ code: 'project_not_found' })
      }
    })

    it('are a page that loads its script from control only', async () => {
      const page = await openCall('GET /docs')
      expect(page.headers.get('content-type')).toMatch(/^text\/html/)
      expect(page.headers.get('content-security-policy')).toContain("default-src 'none'; script-src 'self';")
      expect(page.body).not.toMatch(/https?:\/\//)
      const script = await openCall('GET /docs/explorer.js')
      expect(script.headers.get('content-type')).toMatch(/^text\/javascript/)
      expect(script.body).toContain('openapi-explorer')
    })
  })
})
