import { pino } from 'pino'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { type RunningControl, startControl } from '../control/main.ts'
import { systemClock } from '../shared/clock.ts'
import { newId, randomToken } from '../shared/ids.ts'
import { systemRandom } from '../shared/random.ts'
import { openStore } from '../shared/store/open.ts'
import type { Store } from '../shared/store/port.ts'
import { type Answer, call, config, expectProblem, OPERATOR, type Request } from './support/control-api.ts'
import { type ControlProcess, Deployment } from './support/deployment.ts'
import { until } from './support/redis-admin.ts'

/** Three control processes behind haproxy: whatever was done through one holds at all of them, at once. */

const REVOKED_WITHIN_MS = 1000

describe('three control processes behind a load balancer', () => {
  let deployment: Deployment
  let controls: readonly ControlProcess[]
  beforeAll(async () => {
    deployment = await Deployment.start({ balancer: 'haproxy', controls: 3, nodes: 2 })
    controls = deployment.controls
  })
  afterAll(() => deployment?.close())

  /** The same call at each process, at the same time. */
  const atEach = (line: string, request: Request = {}): Promise<Answer[]> =>
    Promise.all(controls.map((control) => deployment.callAt(control, line, request)))
  const statuses = (answers: readonly Answer[]) => answers.map(({ status }) => status)

  const newProject = async (name: string): Promise<string> =>
    (await deployment.call('POST /projects', { body: { name } })).body.id

  it('each serves its share of what comes through the balancer', async () => {
    const projectId = await newProject('shared')
    const issued = async () =>
      Promise.all(
        controls.map(async (control) => {
          const { body } = await deployment.callAt(control, 'GET /metrics', { as: null })
          const line = /^service_tokens_issued_total{signed_with="project"} (\d+)$/m.exec(body)
          return Number(line?.[1])
        }),
      )
    const before = await issued()
    for (let count = 0; count < 12; count++)
      expect((await deployment.call('POST /tokens', { body: { project_id: projectId } })).status).toBe(200)
    const shares = (await issued()).map((count, i) => count - before[i]!)
    expect(shares.reduce((sum, share) => sum + share)).toBe(12)
    expect(Math.min(...shares)).toBeGreaterThan(1)
  })

  it('what one has created all read, issue tokens for and list, in the next request', async () => {
    for (const creator of controls) {
      const created = await deployment.callAt(creator, 'POST /projects', { body: { name: 'seen by all' } })
      const projectId = created.body.id
      expect(statuses(await atEach('POST /tokens', { body: { project_id: projectId } }))).toEqual([
        200, 200, 200,
      ])
      const key = (await deployment.callAt(creator, `POST /projects/${projectId}/keys`)).body
      const own = await atEach('POST /tokens', { as: key.secret, body: { project_id: projectId } })
      expect(own.map(({ body }) => body.claims.key_id)).toEqual([key.id, key.id, key.id])
      for (const { body } of await atEach(`GET /projects/${projectId}/keys`))
        expect(body.keys.map(({ id }: { id: string }) => id)).toEqual([key.id])
      for (const { body } of await atEach('GET /projects?limit=1'))
        expect(body.projects[0]).toEqual(created.body)
    }
  })

  it('an idempotency-key is one for all of them, also when all are asked at once', async () => {
    const headers = { 'idempotency-key': newId('req', systemRandom) }
    const body = { name: 'once for all' }
    const racing = await Promise.all([
      atEach('POST /projects', { body, headers }),
      atEach('POST /projects', { body, headers }),
    ])
    const answers = [...racing.flat(), ...(await atEach('POST /projects', { body, headers }))]
    expect(new Set(answers.map(({ status, body: { id } }) => `${status} ${id}`)).size).toBe(1)
    expect(answers[0]!.status).toBe(201)
    for (const answer of await atEach('POST /projects', { body: { name: 'other' }, headers }))
      expectProblem(answer, 409, 'conflict')

    const projectId = answers[0]!.body.id
    const keys = await atEach(`POST /projects/${projectId}/keys`, { body: { name: 'k' }, headers })
    expect(new Set(keys.map(({ body: { secret } }) => secret)).size).toBe(1)
    expect((await deployment.call(`GET /projects/${projectId}/keys`)).body.keys).toHaveLength(1)
  })

  it('what is created at all of them at once is all there, each once', async () => {
    const projectId = await newProject('busy')
    const made = await Promise.all(
      Array.from({ length: 10 }, () => atEach(`POST /projects/${projectId}/keys`)),
    )
    const ids = made.flat().map(({ body }) => body.id)
    expect(new Set(ids).size).toBe(30)
    for (const { body } of await atEach(`GET /projects/${projectId}/keys`))
      expect(body.keys.map(({ id }: { id: string }) => id).sort()).toEqual([...ids].sort())
    const rotations = await atEach(`POST /projects/${projectId}/keys/${ids[0]}/rotate`)
    expect(statuses(rotations).sort()).toEqual([201, 409, 409])
  })

  it('a key revoked through one is refused by all in their next request, and its sessions end within a second', async ({
    annotate,
  }) => {
    const projectId = await newProject('revoked')
    const key = (await deployment.call(`POST /projects/${projectId}/keys`)).body
    const other = (await deployment.call(`POST /projects/${projectId}/keys`)).body
    const login = async ({ secret }: { secret: string }) => {
      const { body } = await deployment.call('POST /tokens', { as: secret, body: { project_id: projectId } })
      return { projectId, token: body.token as string }
    }
    const players = await deployment.players(4, await login(key), 'ledger-none:revoked')
    const stays = await deployment.player(await login(other), 'ledger-none:revoked')
    // Every process has used the key a moment ago: what it kept of it must not outlive the revocation.
    const mint = () => atEach('POST /tokens', { as: key.secret, body: { project_id: projectId } })
    const mintFor = () => atEach('POST /tokens', { body: { project_id: projectId, key_id: key.id } })
    expect(statuses([...(await mint()), ...(await mintFor())])).toEqual([200, 200, 200, 200, 200, 200])

    const [first] = controls
    const began = performance.now()
    const revoked = await deployment.callAt(first!, `POST /projects/${projectId}/keys/${key.id}/revoke`)
    expect(revoked.status).toBe(200)
    for (const answer of [...(await mint()), ...(await mintFor())]) expectProblem(answer, 403, 'key_revoked')
    const refusedMs = performance.now() - began
    await until('every session under the key has ended', async () =>
      players.every(({ client }) => client.status === 'closed'),
    )
    const closedMs = performance.now() - began
    await annotate(
      `refused by all after ${Math.round(refusedMs)} ms, sessions closed after ${Math.round(closedMs)} ms`,
    )
    expect(closedMs).toBeLessThan(REVOKED_WITHIN_MS)
    await stays.add()
    expect(
      (await deployment.call('POST /tokens', { as: other.secret, body: { project_id: projectId } })).status,
    ).toBe(200)
    deployment.reset()
  })

  it('a key rotated through one works at all for its grace, and at none after it', async () => {
    const projectId = await newProject('rotated')
    const old = (await deployment.call(`POST /projects/${projectId}/keys`)).body
    const path = `POST /projects/${projectId}/keys/${old.id}/rotate`
    const fresh = (await deployment.callAt(controls[1]!, path, { body: { grace_seconds: 2 } })).body
    const mint = ({ secret }: { secret: string }) =>
      atEach('POST /tokens', { as: secret, body: { project_id: projectId } })
    expect(statuses([...(await mint(old)), ...(await mint(fresh))])).toEqual([200, 200, 200, 200, 200, 200])
    for (const { body } of await atEach(`GET /projects/${projectId}/keys`))
      expect(body.keys.map(({ status }: { status: string }) => status)).toEqual(['active', 'retiring'])
    await until('the grace is over everywhere', async () =>
      (await mint(old)).every(({ status, body }) => status === 403 && body.code === 'key_revoked'),
    )
    expect(statuses(await mint(fresh))).toEqual([200, 200, 200])
  })

  it('says when to ask again while no process is there', async () => {
    for (const control of controls) control.kill()
    await until('the balancer knows it', async () => (await deployment.call('GET /projects')).status === 503)
    const answer = await deployment.call('GET /projects')
    expect(answer.headers.get('content-type')).toBe('application/problem+json')
    expect(answer.headers.get('retry-after')).toBe('1')
  })
})

describe('the limit of tokens', () => {
  const BURST = 5
  const started: { control: RunningControl; store: Store }[] = []
  afterAll(async () => {
    for (const { control, store } of started) {
      await control.close()
      await store.close()
    }
  })

  it('is each process’s own: a caller has so many times as much as there are processes', async () => {
    const parts = { clock: systemClock, random: systemRandom, log: pino({ level: 'silent' }) }
    const place = { redisUrl: inject('redisUrl'), keyPrefix: `test-${randomToken(systemRandom, 12)}:` }
    for (let count = 0; count < 3; count++) {
      const store = await openStore({ ...place, ...parts })
      const tokenRate = { perSecond: 0.001, burst: BURST }
      const control = await startControl({ config: { ...config, tokenRate }, store, ...parts })
      started.push({ control, store })
    }
    const urls = started.map(({ control }) => control.url)
    const projectId = (await call(urls[0]!, 'POST /projects', { body: { name: 'limited' } })).body.id
    const ask = (url: string) => call(url, 'POST /tokens', { as: OPERATOR, body: { project_id: projectId } })
    for (const url of urls) {
      for (let count = 0; count < BURST; count++) expect((await ask(url)).status).toBe(200)
      const refused = await ask(url)
      expectProblem(refused, 429, 'rate_limited')
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
    }
  })
})
