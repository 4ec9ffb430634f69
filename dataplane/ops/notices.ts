import type { Hono } from 'hono'
import type { MiddlewareHandler } from 'hono/types'
import * as v from 'valibot'
import { readJson, validate } from '../../shared/validate.ts'
import type { DeadLetters } from '../notices/dead-letters.ts'
import { type AdminEnv, countUpTo, PROJECT_ID } from './query.ts'
import { withStore } from './rooms.ts'

/** The notices of projects at a node. */
export interface NoticesSource {
  readonly notices: Pick<DeadLetters, 'describe' | 'resend' | 'removeAll'>
}

const LARGEST_PAGE = 200
const PAGE_QUERY = v.strictObject({
  project_id: v.optional(PROJECT_ID, ''),
  limit: v.optional(
    v.pipe(countUpTo(LARGEST_PAGE), v.minValue(1, `must be a whole number from 1 to ${LARGEST_PAGE}`)),
    '50',
  ),
  cursor: v.exactOptional(v.string()),
})
const RESEND_BODY = v.strictObject({ project_id: PROJECT_ID, id: v.exactOptional(v.string()) })

/** Mounts `GET /admin/notices` and `POST /admin/notices/resend`. */
export function noticeCalls(
  app: Hono<AdminEnv>,
  guard: MiddlewareHandler<AdminEnv>,
  { notices }: NoticesSource,
): void {
  app.get('/admin/notices', guard, (c) =>
    withStore(async () => {
      const { project_id: projectId, limit, cursor } = validate(PAGE_QUERY, c.req.query(), 'query')
      return c.json(await notices.describe(projectId, limit, cursor), 200, { 'cache-control': 'no-store' })
    }),
  )
  app.post('/admin/notices/resend', guard, (c) =>
    withStore(async () => {
      const { project_id: projectId, id } = validate(RESEND_BODY, await readJson(c.req.raw), 'body')
      return c.json(await notices.resend(projectId, id))
    }),
  )
}
