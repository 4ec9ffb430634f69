import { StoreUnavailable } from './store/port.ts'

/** Error answers of both planes: as `application/problem+json` (RFC 9457), and as an error to throw. */

/** All values of `code` in error answers of the control API. */
export const CONTROL_PROBLEMS = {
  invalid_request: { status: 400, title: 'The request is not valid' },
  unauthenticated: { status: 401, title: 'No valid credential was given' },
  forbidden: { status: 403, title: 'The credential does not allow this' },
  cross_origin: { status: 403, title: 'An open API accepts no requests of other origins' },
  missing_scope: { status: 403, title: 'The key lacks the scope this needs' },
  key_revoked: { status: 403, title: 'The key was revoked' },
  project_disabled: { status: 403, title: 'The project is disabled' },
  not_found: { status: 404, title: 'There is nothing at this path' },
  project_not_found: { status: 404, title: 'There is no such project' },
  key_not_found: { status: 404, title: 'There is no such key in this project' },
  room_not_found: { status: 404, title: 'There is no such room' },
  session_not_found: { status: 404, title: 'There is no such session' },
  method_not_allowed: { status: 405, title: 'The path does not accept this method' },
  conflict: { status: 409, title: 'The request conflicts with what is there' },
  payload_too_large: { status: 413, title: 'The body is larger than 64 KiB' },
  unsupported_media_type: { status: 415, title: 'The body is not plain application/json' },
  room_full: { status: 409, title: 'The room has too few free seats' },
  project_full: { status: 409, title: 'The project has its maximum number of rooms' },
  too_many_rooms: {
    status: 409,
    title: 'The key has created its maximum number of rooms that sleep or have timers',
  },
  room_logic_refused: { status: 409, title: 'The logic of the room refused' },
  rate_limited: { status: 429, title: 'Too many requests' },
  room_logic_failed: { status: 500, title: 'The logic of the room failed' },
  internal_error: { status: 500, title: 'Something went wrong inside the service' },
  store_unreachable: { status: 503, title: 'The store cannot be reached' },
  store_full: { status: 503, title: 'The store has no memory left' },
  store_refused: { status: 503, title: 'The store refuses commands' },
  store_data_lost: { status: 503, title: 'The store lost its data' },
  room_unavailable: { status: 503, title: 'The room cannot be reached at the moment' },
  node_unavailable: { status: 503, title: 'No node can serve this' },
  draining: { status: 503, title: 'The process is going away' },
  clock_wrong: { status: 503, title: 'The clock of the process is wrong' },
  timeout: { status: 504, title: 'There was no answer in time' },
} as const satisfies Record<string, { status: number; title: string }>

/** All values of `code` in error answers over HTTP. */
export const PROBLEMS = {
  ...CONTROL_PROBLEMS,
  origin_not_allowed: { status: 403, title: 'Pages of this origin may not connect' },
  request_timeout: { status: 408, title: 'The request took too long to arrive' },
  upgrade_required: { status: 426, title: 'This port accepts websockets only' },
  headers_too_large: { status: 431, title: 'The headers of the request are too large' },
  worker_unavailable: { status: 502, title: 'A worker did not answer' },
  cordoned: { status: 503, title: 'The node accepts no new rooms and sessions' },
  lease_lost: { status: 503, title: 'The lease of the node has expired' },
  no_worker: { status: 503, title: 'No worker serves' },
} as const satisfies Record<string, { status: number; title: string }>

export type ProblemCode = keyof typeof PROBLEMS

/** One invalid field. `path` is empty for the whole body. */
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
  /** True: the store has no such record. While the store has lost its data, this is not the answer. */
  readonly isAbsence: boolean

  constructor(
    code: ProblemCode,
    detail: string,
    more: {
      errors?: readonly FieldError[]
      headers?: Readonly<Record<string, string>>
      isAbsence?: boolean
    } = {},
  ) {
    super(detail)
    this.code = code
    this.errors = more.errors
    this.headers = more.headers ?? {}
    this.isAbsence = more.isAbsence ?? false
  }
}

/** Body of an error answer. */
interface ProblemBody {
  readonly type: string
  readonly title: string
  readonly status: number
  readonly code: ProblemCode
  readonly detail: string
  readonly request_id: string
  readonly errors?: readonly FieldError[]
}

/** Returns the status, the body and the headers of the answer. */
export function answerOf(problem: Problem, requestId: string) {
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
  const headers = {
    'content-type': 'application/problem+json',
    'x-request-id': requestId,
    ...problem.headers,
  }
  return { status, body: JSON.stringify(body), headers }
}

/** Returns `problem` as a response. */
export function problemResponse(problem: Problem, requestId: string): Response {
  const { body, ...init } = answerOf(problem, requestId)
  return new Response(body, init)
}

const DETAILS = {
  store_unreachable: 'the store cannot be reached',
  store_full: 'the store has no memory left and refuses writes (OOM)',
  store_refused: 'the store refuses commands',
} as const

/** Code and text of a failed store call in answers over HTTP. `detail` is a part of a sentence. */
export function storeReason(error: unknown) {
  if (!(error instanceof StoreUnavailable))
    return { code: 'store_refused', detail: DETAILS.store_refused } as const
  const { failure: code, reply } = error
  return { code, detail: code === 'store_refused' ? `${DETAILS[code]} (${reply})` : DETAILS[code] } as const
}

/** Returns the problem of a failed store call: a 503 whose code is the class of the failure. */
export function storeProblem(error: StoreUnavailable): Problem {
  const { code, detail } = storeReason(error)
  return new Problem(code, `The request needs the store, and ${detail}. Try again.`, {
    headers: { 'retry-after': '1' },
  })
}

/** Returns the answer instead of the absence of a project or key while the store has lost its data: a backup may bring it back. */
export const storeDataLost = (): Problem =>
  new Problem(
    'store_data_lost',
    'The store lost its data, so control cannot tell whether this project or key exists. Try again: it works when the data is back. Projects and keys that were created since the loss work now.',
    { headers: { 'retry-after': '5' } },
  )

/** Returns the problem of a request without a route: the path is unknown, or it has other methods. */
export function strayProblem(
  routes: readonly { readonly method: string; readonly path: string }[],
  path: string,
): Problem {
  const fitting = routes.filter((route) => route.method !== 'ALL' && fits(route.path, path))
  if (fitting.length === 0) return new Problem('not_found', `There is nothing at ${path.slice(0, 200)}.`)
  const methods = new Set(fitting.map(({ method }) => method))
  if (methods.has('GET')) methods.add('HEAD')
  const allow = [...methods].sort().join(', ')
  return new Problem('method_not_allowed', `This path accepts ${allow}.`, { headers: { allow } })
}

/** Returns true if a path matches the pattern of a route, such as `/projects/:id`. */
function fits(pattern: string, path: string): boolean {
  const expected = pattern.split('/')
  const given = path.split('/')
  return (
    expected.length === given.length &&
    expected.every((part, at) => (part.startsWith(':') ? given[at] !== '' : part === given[at]))
  )
}
