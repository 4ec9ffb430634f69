import { type Context, Hono } from 'hono'
import * as v from 'valibot'
import { requestIdOf } from '../../shared/ids.ts'
import { Problem, problemResponse } from '../../shared/problem.ts'
import { MAX } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'

/** What the apps of the operations side share: parameters of calls, ids of requests, and errors. */

/** What a room is asked for by. Other ids are not those of rooms: no client could name them. */
export const ROOM_ID = v.pipe(
  v.string(),
  v.regex(
    new RegExp(`^[^:]{1,${MAX.room_type}}:.{1,${MAX.key}}$`, 's'),
    `must be type:key, with a type of at most ${MAX.room_type} and a key of at most ${MAX.key} characters`,
  ),
)
export const PROJECT_ID = v.pipe(v.string(), v.minLength(1, 'must not be empty'))

/** What is searched for has so many characters at most. */
export const LONGEST_TEXT = 200
/** What is searched for. */
export const SEARCH_TEXT = v.pipe(
  v.string(),
  v.maxLength(LONGEST_TEXT, `must be ${LONGEST_TEXT} characters or fewer`),
  v.transform((text) => text.trim()),
)

/** How many at most. */
export const countUpTo = (most: number) =>
  v.pipe(
    v.string(),
    v.regex(/^\d{1,4}$/, `must be a whole number from 0 to ${most}`),
    v.transform(Number),
    v.maxValue(most, `must be a whole number from 0 to ${most}`),
  )

/** Variables of a request. */
export type AdminEnv = { Variables: { requestId: string } }

/**
 * Returns an app whose requests have an id, and whose errors are problems. `unexpected` logs an error that is no `Problem`, and says what the
 * caller gets.
 */
export function newAdminApp(
  random: Random,
  unexpected: (error: Error, c: Context<AdminEnv>) => Problem,
): Hono<AdminEnv> {
  const app = new Hono<AdminEnv>()
  app.use(async (c, next) => {
    const requestId = requestIdOf(c.req.header('x-request-id'), random)
    c.set('requestId', requestId)
    await next()
    c.header('x-request-id', requestId)
  })
  app.onError((error, c) =>
    problemResponse(error instanceof Problem ? error : unexpected(error, c), c.get('requestId')),
  )
  return app
}
