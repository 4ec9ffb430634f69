import * as v from 'valibot'
import { unsafeIntegerIn } from './json.ts'
import { type FieldError, Problem } from './problem.ts'
import { checkJson, NotJson } from './sync/check.ts'

/** A schema of a request body or query: an object with known entries. */
export type ObjectSchema<Output> = v.GenericSchema<unknown, Output> & { readonly entries: v.ObjectEntries }

const SHOWN_CHARACTERS = 80

/** Returns the output of the schema for `value`. Throws a `Problem` (invalid_request) with all invalid fields. */
export function validate<Output>(
  schema: ObjectSchema<Output>,
  value: unknown,
  what: 'body' | 'query',
): Output {
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw invalid([{ path: '', message: `the ${what} must be a JSON object` }])
  const unknown = unknownFields(schema, value, what === 'body' ? 'field' : 'parameter')
  const known = Object.fromEntries(
    Object.entries(value).filter(([name]) => Object.hasOwn(schema.entries, name)),
  )
  const result = v.safeParse(schema, known)
  if (result.success && unknown.length === 0) return result.output
  throw invalid([...unknown, ...(result.issues ?? []).map(complaint)])
}

/** Returns the problem of a request with these invalid fields. */
export function invalid(errors: readonly FieldError[]): Problem {
  const [first, ...others] = errors
  const more = others.length > 0 ? ` (and ${others.length} more, see errors)` : ''
  const sentence = first && (first.path ? `${first.path}: ${first.message}` : first.message)
  return new Problem('invalid_request', `${sentence ?? 'the request does not fit'}${more}`, {
    errors: errors.filter((error, at) => errors.findIndex(({ path }) => path === error.path) === at),
  })
}

/**
 * Throws a `Problem` (invalid_request) unless rooms accept the JSON `value`, which has for example at most 64 levels. `path`: place of the
 * value in the body.
 */
export function requireJson(value: unknown, path = ''): void {
  try {
    checkJson(value)
  } catch (error) {
    if (!(error instanceof NotJson)) throw error
    throw invalid([{ path: `${path}${error.path}`, message: error.found }])
  }
}

function unknownFields(
  schema: ObjectSchema<unknown>,
  value: object,
  kind: 'field' | 'parameter',
): FieldError[] {
  const known = Object.keys(schema.entries)
  const may = known.length > 0 ? `known ${kind}s: ${known.join(', ')}` : `no ${kind} is expected`
  return Object.keys(value)
    .filter((name) => !known.includes(name))
    .map((name) => ({ path: shorten(name), message: `unknown ${kind}; ${may}` }))
}

function complaint(issue: v.BaseIssue<unknown>): FieldError {
  const path = v.getDotPath(issue) ?? ''
  if (issue.received === 'undefined') return { path, message: 'is required' }
  return { path, message: `${issue.message}; got ${shorten(issue.received)}` }
}

const shorten = (text: string): string =>
  text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text

/** Maximum size of a request body, in bytes. */
export const MAX_BODY_BYTES = 64 * 1024

/**
 * Returns the JSON value in the body of `request`, or `absent` if the body is empty. Then it needs no content type. Rejects with a
 * `Problem`: unsupported_media_type, invalid_request, or payload_too_large, which never buffers more than `maxBytes`.
 */
export async function readJson(
  request: Request,
  maxBytes = MAX_BODY_BYTES,
  absent: unknown = {},
): Promise<unknown> {
  const text = await readText(request, maxBytes)
  return text === undefined ? absent : parsed(text)
}

/** As `readJson`, for a body that another program has written: an integer that would be rounded is an invalid_request. */
export async function readExactJson(
  request: Request,
  maxBytes = MAX_BODY_BYTES,
  absent: unknown = {},
): Promise<unknown> {
  const text = await readText(request, maxBytes)
  if (text === undefined) return absent
  const value = parsed(text)
  const unsafe = unsafeIntegerIn(text)
  if (unsafe === undefined) return value
  const message = `the integer ${shorten(unsafe)} is beyond 2^53 - 1 and would be rounded; send it as a string`
  throw invalid([{ path: '', message }])
}

const notJson = (): Problem => invalid([{ path: '', message: 'the body is not valid JSON in UTF-8' }])

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw notJson()
  }
}

/** Returns the text of a JSON body. Undefined: the body is empty. */
async function readText(request: Request, maxBytes: number): Promise<string | undefined> {
  const bytes = await readBytes(request, maxBytes)
  if (bytes.length === 0) return undefined
  const encoding = request.headers.get('content-encoding') ?? 'identity'
  if (encoding.toLowerCase() !== 'identity')
    throw new Problem(
      'unsupported_media_type',
      `The body is encoded as ${encoding.slice(0, 100)}; send it without content-encoding.`,
    )
  const type = request.headers.get('content-type') ?? ''
  if (!/^application\/json\s*(?:;|$)/i.test(type))
    throw new Problem(
      'unsupported_media_type',
      type === ''
        ? 'The request has a body and no content-type; send application/json.'
        : `The body is ${type.slice(0, 100)}; send application/json.`,
    )
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw notJson()
  }
}

async function readBytes(request: Request, maxBytes: number): Promise<Uint8Array> {
  const announced = request.headers.get('content-length')
  if (Number(announced ?? 0) > maxBytes) throw tooLarge(maxBytes)
  try {
    // HTTP limits a body to its announced length. Reading it in one call avoids the stream, which costs more than everything else.
    const bytes =
      announced === null ? await gather(request.body, maxBytes) : new Uint8Array(await request.arrayBuffer())
    if (bytes.length <= maxBytes) return bytes
  } catch {
    throw invalid([{ path: '', message: 'the body ends before its end' }])
  }
  throw tooLarge(maxBytes)
}

/** Returns the content of a stream. If it exceeds the limit, it returns a little more than the limit. */
async function gather(stream: ReadableStream<Uint8Array> | null, maxBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = []
  let length = 0
  for await (const chunk of stream ?? []) {
    chunks.push(chunk)
    length += chunk.length
    if (length > maxBytes) break
  }
  return Buffer.concat(chunks)
}

const tooLarge = (maxBytes: number): Problem =>
  new Problem('payload_too_large', `The body is larger than ${maxBytes} bytes.`)
