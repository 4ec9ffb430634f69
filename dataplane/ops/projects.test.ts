import { expect, it } from 'vitest'
import { Problem } from '../../shared/problem.ts'
import type { CountedRoom } from '../../shared/store/port.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import type { RequestAnswer } from '../traffic.ts'
import { projectCalls } from './projects.ts'
import { newAdminApp } from './query.ts'

const unexpected = () => Promise.reject(new Error('unexpected'))

/** A node whose store counts 120 rooms of prj_1. */
function setup(answers: Readonly<Record<string, RequestAnswer>> = {}) {
  const rooms: CountedRoom[] = Array.from({ length: 120 }, (_, n) => ({
    roomId: `arena:${n}`,
    until: 1000 + n,
  }))
  const ended: string[] = []
  const app = newAdminApp(new SeededRandom(), () => new Problem('internal_error', 'unexpected'))
  projectCalls(app, (_, next) => next(), {
    countedRooms: async (projectId, limit, after) =>
      projectId === 'prj_1' ? rooms.filter(({ until }) => until > (after?.until ?? 0)).slice(0, limit) : [],
    random: new SeededRandom(),
    requestRoom: async (_, roomId, request) => {
      if (request.do.op === 'close') ended.push(roomId)
      return answers[roomId] ?? { reply: { ended: true }, epoch: 1, seq: 1 }
    },
    endSession: async (_, sessionId) => sessionId === 'ses_1',
    notices: {
      describe: unexpected,
      resend: unexpected,
      removeAll: async (projectId) => void ended.push(projectId),
    },
  })
  const call = async (path: string) => {
    const response = await app.request(path, { method: 'DELETE' })
    return { status: response.status, body: await response.json() }
  }
  return { call, ended }
}

it('ends the rooms of a project, 50 at a time, each once, and then deletes its notices', async () => {
  const { call, ended } = setup({ 'arena:7': { code: 'room_not_found', message: 'it is nowhere' } })
  const counts: number[] = []
  for (let cursor: string | null = ''; cursor !== null; ) {
    const { body } = await call(`/internal/project-rooms?project_id=prj_1${cursor && `&cursor=${cursor}`}`)
    counts.push(body.ended_rooms)
    cursor = body.next_cursor
  }
  expect(counts).toEqual([50, 50, 20])
  expect(ended.pop()).toBe('prj_1')
  expect(new Set(ended).size).toBe(120)
  expect(ended).toHaveLength(120)
})

it.each([
  ['timeout' as const, 'no answer within 10 s'],
  ['room_unavailable' as const, 'its code fails'],
])('names a room that has not ended: %s', async (code, reason) => {
  const { call } = setup({ 'arena:3': { code, message: reason } })
  const { status, body } = await call('/internal/project-rooms?project_id=prj_1')
  expect([status, body.code, body.detail]).toEqual([
    503,
    'room_unavailable',
    `arena:3 has not ended: ${reason}. Try again.`,
  ])
})

it('says of a session whether it was there', async () => {
  const { call } = setup()
  const query = '/internal/sessions?project_id=prj_1&session_id='
  expect((await call(`${query}ses_1`)).body).toEqual({
    project_id: 'prj_1',
    session_id: 'ses_1',
    ended: true,
  })
  expect(await call(`${query}ses_2`)).toMatchObject({ status: 404, body: { code: 'session_not_found' } })
})
