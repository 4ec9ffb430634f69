import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ControlUnderTest, expectProblem, OPERATOR, type Request } from './support/control-api.ts'

/** What holds for every call of the control API, what nodes ask of it, and its operations endpoints. */

describe('the control API, whatever is asked', () => {
  const control = new ControlUnderTest()
  const { clock } = control
  const api = (line: string, request?: Request) => control.call(line, request)

  beforeAll(() => control.start())
  afterAll(() => control.close())

  describe('callers', () => {
    it('may be any of the operators', async () => {
      expect((await api('GET /projects', { as: 'another-operator-token' })).status).toBe(200)
    })
  })

  describe('every answer', () => {
    it('carries a request id: the caller’s own when it is a sensible one', async () => {
      const own = await api('GET /healthz', { headers: { 'x-request-id': 'trace-1.a:b' } })
      expect(own.headers.get('x-request-id')).toBe('trace-1.a:b')
      for (const bad of ['has space', 'x'.repeat(129), '<script>']) {
        const answer = await api('GET /nothing', { headers: { 'x-request-id': bad } })
        expect(answer.body.request_id).toMatch(/^req_/)
      }
    })

    it('is refused to bodies that are not JSON objects', async () => {
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

    it('is 413 to bodies above 64 KiB, whether they say their length or not', async () => {
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

    it('is 404 where there is nothing, and 405 with what is allowed where there is', async () => {
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

    it('may not be stored by caches, and is not for pages of other origins', async () => {
      const answer = await api('GET /projects', { headers: { origin: 'https://game.example' } })
      expect(answer.headers.get('cache-control')).toBe('no-store')
      expect(answer.headers.has('access-control-allow-origin')).toBe(false)
    })
  })

  describe('GET /internal/key-status', () => {
    it('tells nodes what they need', async () => {
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
        revoked_subs: [],
      })
      await api(`POST /projects/${projectId}/keys/${key.id}/revoke`)
      const revokedAt = new Date(clock.now()).toISOString()
      expect(await control.statusOf(projectId, key.id)).toMatchObject({
        status: 'revoked',
        revoked: true,
        revoked_at: revokedAt,
      })
    })

    it('tells of the built-in pair without key_id', async () => {
      const projectId = await control.newProject()
      expect(await control.statusOf(projectId)).toEqual({
        project_id: projectId,
        key_id: null,
        exists: true,
        status: 'active',
        revoked: false,
        revoked_at: null,
        scopes: ['token:mint'],
        public_key: expect.stringMatching(/^k4\.public\./),
        revoked_subs: [],
      })
    })

    it('says exists: false for what is unknown, and for a key of another project', async () => {
      const [mine, other] = [await control.newProject(), await control.newProject()]
      const key = await control.newKey(other)
      const absent = {
        exists: false,
        status: null,
        revoked: false,
        revoked_at: null,
        scopes: [],
        public_key: null,
        revoked_subs: [],
      }
      expect(await control.statusOf(mine, 'key_nobody')).toEqual({
        project_id: mine,
        key_id: 'key_nobody',
        ...absent,
      })
      expect(await control.statusOf(mine, key.id)).toEqual({ project_id: mine, key_id: key.id, ...absent })
      expect(await control.statusOf('prj_nobody')).toEqual({
        project_id: 'prj_nobody',
        key_id: null,
        ...absent,
      })
    })
  })

  describe('operations', () => {
    const openCall = (line: string) => api(line, { as: null })

    it('tell health without a credential', async () => {
      expect(await openCall('GET /healthz')).toMatchObject({ status: 200 })
      expect(await openCall('GET /readyz')).toMatchObject({ status: 200 })
    })

    it('count requests by pattern and tokens by signer, under names of the service', async () => {
      const projectId = await control.newProject()
      const read = async (line: string) => {
        const { body } = await openCall('GET /metrics')
        return Number(
          body
            .split('\n')
            .find((row: string) => row.startsWith(line))
            ?.split(' ')
            .at(-1) ?? 0,
        )
      }
      const issued = 'service_tokens_issued_total{signed_with="project"}'
      const requests = 'service_http_requests_total{method="GET",route="/projects/:id/keys",status="200"}'
      const [tokensBefore, requestsBefore] = [await read(issued), await read(requests)]
      await api('POST /tokens', { body: { project_id: projectId } })
      await api(`GET /projects/${projectId}/keys`)
      expect(await read(issued)).toBe(tokensBefore + 1)
      expect(await read(requests)).toBe(requestsBefore + 1)
      const { headers, body } = await openCall('GET /metrics')
      expect(headers.get('content-type')).toMatch(/^text\/plain/)
      expect(body).not.toContain(projectId)
      const types: string[] = body.split('\n').filter((row: string) => row.startsWith('# TYPE '))
      for (const [name, kind] of types.map((row) => row.split(' ').slice(2))) {
        expect(name).toMatch(/^service_/)
        if (kind === 'counter') expect(name).toMatch(/_total$/)
      }
    })

    it('describe every call of the API', async () => {
      const { body } = await openCall('GET /openapi.json')
      const calls = Object.entries(body.paths as Record<string, object>).flatMap(([path, item]) =>
        Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`),
      )
      expect(calls.sort()).toEqual([
        'GET /docs',
        'GET /healthz',
        'GET /internal/key-status',
        'GET /metrics',
        'GET /openapi.json',
        'GET /projects',
        'GET /projects/{id}/keys',
        'GET /readyz',
        'POST /projects',
        'POST /projects/{id}/keys',
        'POST /projects/{id}/keys/{keyId}/revoke',
        'POST /projects/{id}/keys/{keyId}/rotate',
        'POST /projects/{id}/subs/{sub}/revoke',
        'POST /tokens',
      ])
      const wish = body.paths['/tokens'].post.requestBody.content['application/json'].schema
      expect(wish.properties.ttl_seconds).toMatchObject({
        type: 'integer',
        minimum: 10,
        maximum: 86_400,
        default: 300,
      })
      expect(wish).toMatchObject({ required: ['project_id'], additionalProperties: false })
      const page = await openCall('GET /docs')
      expect(page.headers.get('content-type')).toMatch(/^text\/html/)
      for (const text of ['Issue a client token', 'key_revoked', 'grace_seconds'])
        expect(page.body).toContain(text)
      expect(page.body).not.toMatch(/<(script|link|img|iframe)|@import|url\(|https?:\/\//)
    })
  })
})
