/** What can go wrong with a request, as `application/problem+json` (RFC 9457) and as an error to throw. */

/** Every `code` of an error answer of the control API. */
export const PROBLEMS = {
  invalid_request: { status: 400, title: 'The request is not valid' },
  unauthenticated: { status: 401, title: 'No valid credential was given' },
  forbidden: { status: 403, title: 'The credential does not allow this' },
  cross_origin: { status: 403, title: 'An open API takes no requests of other origins' },
  missing_scope: { status: 403, title: 'The key lacks the scope this needs' },
  key_revoked: { status: 403, title: 'The key was revoked' },
  not_found: { status: 404, title: 'There is nothing at this path' },
  project_not_found: { status: 404, title: 'There is no such project' },
  key_not_found: { status: 404, title: 'There is no such key in this project' },
  room_not_found: { status: 404, title: 'There is no such room' },
  method_not_allowed: { status: 405, title: 'The path does not take this method' },
  conflict: { status: 409, title: 'The request conflicts with what is there' },
  payload_too_large: { status: 413, title: 'The body is larger than 64 KiB' },
  unsupported_media_type: { status: 415, title: 'The body is not application/json' },
  rate_limited: { status: 429, title: 'Too many requests' },
  internal_error: { status: 500, title: 'Something went wrong inside the service' },
  store_unavailable: { status: 503, title: 'The store cannot be reached' },
  room_unavailable: { status: 503, title: 'The room cannot be reached at the moment' },
  node_unavailable: { status: 503, title: 'No node can serve this' },
  draining: { status: 503, title: 'The process is going away' },
  timeout: { status: 504, title: 'There was no answer in time' },
} as const satisfies Record<string, { status: number; title: string }>

export type ProblemCode = keyof typeof PROBLEMS

/** Those among them that refuse a caller: 401, 403 and 429. */
export const REFUSALS = (Object.keys(PROBLEMS) as ProblemCode[]).filter((code) =>
  [401, 403, 429].includes(PROBLEMS[code].status),
)

/** One thing that is wrong with one field; `path` is empty for the body as a whole. */
export interface FieldError {
  readonly path: string
  readonly message: string
}

/** An error answer. `detail` is for people: what was wrong, and what would be right. */
export class Problem extends Error {
  override readonly name = 'Problem'
  readonly code: ProblemCode
  readonly errors: readonly FieldError[] | undefined
  readonly headers: Readonly<Record<string, string>>

  constructor(
    code: ProblemCode,
    detail: string,
    more: { errors?: readonly FieldError[]; headers?: Readonly<Record<string, string>> } = {},
  ) {
    super(detail)
    this.code = code
    this.errors = more.errors
    this.headers = more.headers ?? {}
  }
}

/** The body of an error answer. */
export interface ProblemBody {
  readonly type: string
  readonly title: string
  readonly status: number
  readonly code: ProblemCode
  readonly detail: string
  readonly request_id: string
  readonly errors?: readonly FieldError[]
}

/** `problem` as the response a caller gets. */
export function problemResponse(problem: Problem, requestId: string): Response {
  const { status, title } = PROBLEMS[problem.code]
  const body: ProblemBody = {
    type: `urn:roomful:problem:${problem.code}`,
    title,
    status,
    code: problem.code,
    detail: problem.message,
    request_id: requestId,
    ...(problem.errors && { errors: problem.errors }),
  }
  return new Response(JSON.stringify(body), {
    status,
    headers: { 'content-type': 'application/problem+json', ...problem.headers },
  })
}
