import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ControlUnderTest, type Request } from './support/control-api.ts'

/** What data-plane nodes ask of the control API. */

describe('the control API', () => {
  const control = new ControlUnderTest()
  const { clock } = control
  const api = (line: string, request?: Request) => control.call(line, request)

  beforeAll(() => control.start())
  afterAll(() => control.close())

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
})
