import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Answer, expectProblem, type Request } from './support/control-api.ts'
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

  it('says when to ask again while no process is there', async () => {
    for (const control of controls) control.kill()
    await until('the balancer knows it', async () => (await deployment.call('GET /projects')).status === 503)
    const answer = await deployment.call('GET /projects')
    expect(answer.headers.get('content-type')).toBe('application/problem+json')
    expect(answer.headers.get('retry-after')).toBe('1')
  })
})
