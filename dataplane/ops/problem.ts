import type { Context } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'

/** What was wrong with a request, as RFC 9457 problem details. */
export interface ProblemDetails {
  readonly status: ContentfulStatusCode
  readonly code: string
  readonly title: string
  readonly detail: string
  readonly errors?: readonly { readonly path: string; readonly message: string }[]
}

/** Answers with `application/problem+json`, in the same shape as the control API. */
export function problem(c: Context, details: ProblemDetails): Response {
  const { status, code, title, detail, errors } = details
  const request_id: unknown = c.get('request_id')
  const body = {
    type: `urn:roomful:problem:${code}`,
    title,
    status,
    code,
    detail,
    request_id,
    ...(errors && { errors }),
  }
  return c.json(body, status, { 'content-type': 'application/problem+json' })
}
