import type { Server } from 'node:http'
import type { MiddlewareHandler } from 'hono'
import { type Context, Hono } from 'hono'
import * as v from 'valibot'
import { createHttpServer, InternalToken } from '../../shared/http-server.ts'
import { requestIdOf } from '../../shared/ids.ts'
import { Problem, problemResponse, storeProblem } from '../../shared/problem.ts'
import { MAX } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'

/** Common parts of the apps of the operations side: parameters of calls, request ids, the internal token, errors, and listening. */

/** Id of a room. Clients cannot name rooms with other ids. */
export const ROOM_ID = v.pipe(
  v.string(),
  v.regex(
    new RegExp(`^[^:]{1,${MAX.room_type}}:.{1,${MAX.key}}$`, 's'),
    `must be type:key, with a type of at most ${MAX.room_type} and a key of at most ${MAX.key} characters`,
  ),
)
export const PROJECT_ID = v.pipe(v.string(), v.minLength(1, 'must not be empty'))

/** Maximum length of the text of a search. */
export const LONGEST_TEXT = 200
/** Text of a search. */
export const SEARCH_TEXT = v.pipe(
  v.string(),
  v.maxLength(LONGEST_TEXT, `must be ${LONGEST_TEXT} characters or fewer`),
  v.transform((text) => text.trim()),
)

/** Returns the schema of a count from 0 to `most`. */
export const countUpTo = (most: number) =>
  v.pipe(
    v.string(),
    v.regex(/^\d{1,4}$/, `must be a whole number from 0 to ${most}`),
    v.transform(Number),
    v.maxValue(most, `must be a whole number from 0 to ${most}`),
  )

const LARGEST_PAGE = 200
/** Number of entries of a page. */
export const PAGE_LIMIT = v.optional(
  v.pipe(countUpTo(LARGEST_PAGE), v.minValue(1, `must be a whole number from 1 to ${LARGEST_PAGE}`)),
  '50',
)

/** Variables of a request. */
export type AdminEnv = { Variables: { requestId: string } }

/**
 * Returns an app whose requests have an id, and whose errors are problems. `unexpected` logs an error that is not a `Problem`, and returns the
 * problem for the caller.
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
    // `c.header` would replace the finished response by a copy whose body is a stream, which costs a tenth of a backend's call.
    c.res.headers.set('x-request-id', requestId)
  })
  app.onError((error, c) =>
    problemResponse(error instanceof Problem ? error : unexpected(error, c), c.get('requestId')),
  )
  return app
}

/** Passes only requests with an internal token. */
export function requireToken(tokens: string | undefined): MiddlewareHandler<AdminEnv> {
  const internal = new InternalToken(tokens)
  return async (c, next) => {
    if (internal.accepts(c.req.header('x-service-internal-token'))) return next()
    throw new Problem(
      'unauthenticated',
      'The header x-service-internal-token must carry the internal token of this deployment.',
    )
  }
}

/** Answers with 503 if the store does not answer. */
export async function withStore(answer: () => Promise<Response>): Promise<Response> {
  try {
    return await answer()
  } catch (error) {
    throw error instanceof StoreUnavailable ? storeProblem(error) : error
  }
}

/** Serves an app at an address that no other worker of this process shares. Rejects if the address is not available. */
export const listen = (
  fetch: Hono<AdminEnv>['fetch'],
  random: Random,
  host: string,
  port: number,
): Promise<Server> =>
  new Promise((resolve, reject) => {
    const server = createHttpServer(fetch, random)
    server.once('error', reject)
    server.listen({ port, host, exclusive: true }, () => {
      server.off('error', reject)
      resolve(server)
    })
  })
