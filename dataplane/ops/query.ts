import type { Context } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import * as v from 'valibot'
import type { Order } from '../descriptions.ts'

/** The parameters of the calls under `/admin`, and the answers to what is refused. */

/** What a room is asked for by. */
export const ROOM_ID = v.pipe(v.string(), v.regex(/^[^:]+:.+$/s, 'must be type:key'))
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

/** A column's name, or one with a minus before it for the other way round. */
export const orderBy = <C extends string>(columns: readonly C[]) =>
  v.pipe(
    v.string(),
    v.check(
      (text) => (columns as readonly string[]).includes(text.replace(/^-/, '')),
      `must be one of ${columns.join(', ')}, with a - before it for the largest first`,
    ),
    v.transform((text): Order<C> => ({ by: text.replace(/^-/, '') as C, descending: text.startsWith('-') })),
  )

/** A 400 that names each parameter that is wrong. */
export const notUnderstood = (c: Context, issues: readonly v.BaseIssue<unknown>[]): Response =>
  problem(c, {
    status: 400,
    code: 'invalid_request',
    title: 'Invalid request',
    detail: 'the query is not understood',
    errors: issues.map((issue) => ({ path: v.getDotPath(issue) ?? '', message: issue.message })),
  })

/** What was wrong with a request, as RFC 9457 problem details. */
interface ProblemDetails {
  readonly status: ContentfulStatusCode
  readonly code: string
  readonly title: string
  readonly detail: string
  readonly errors?: readonly { readonly path: string; readonly message: string }[]
}

/** Answers with `application/problem+json`, in the same shape as the control API. */
export function problem(c: Context, details: ProblemDetails): Response {
  const { status, code, title, detail, errors } = details
  const requestId: unknown = c.get('requestId')
  const body = {
    type: `urn:roomful:problem:${code}`,
    title,
    status,
    code,
    detail,
    request_id: requestId,
    ...(errors && { errors }),
  }
  return c.json(body, status, { 'content-type': 'application/problem+json' })
}
