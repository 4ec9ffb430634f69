import * as v from 'valibot'
import { type FieldError, Problem } from './problem.ts'

/** A schema of a request body or query: an object with known entries. */
export type ObjectSchema<Output> = v.GenericSchema<unknown, Output> & { readonly entries: v.ObjectEntries }

const SHOWN_CHARACTERS = 80

/** `value` as the schema's output. Throws a `Problem` (invalid_request) that names every field that does not fit. */
export function validate<Output>(
  schema: ObjectSchema<Output>,
  value: unknown,
  what: 'body' | 'query',
): Output {
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw invalid([{ path: '', message: `the ${what} must be a JSON object` }])
  const unknown = what === 'body' ? unknownFields(schema, value) : []
  const known = Object.fromEntries(
    Object.entries(value).filter(([name]) => Object.hasOwn(schema.entries, name)),
  )
  const result = v.safeParse(schema, known)
  if (result.success && unknown.length === 0) return result.output
  throw invalid([...unknown, ...(result.issues ?? []).map(complaint)])
}

/** The problem of a request whose fields do not fit. */
export function invalid(errors: readonly FieldError[]): Problem {
  const [first, ...others] = errors
  const more = others.length > 0 ? ` (and ${others.length} more, see errors)` : ''
  const sentence = first && (first.path ? `${first.path}: ${first.message}` : first.message)
  return new Problem('invalid_request', `${sentence ?? 'the request does not fit'}${more}`, {
    errors: errors.filter((error, at) => errors.findIndex(({ path }) => path === error.path) === at),
  })
}

function unknownFields(schema: ObjectSchema<unknown>, value: object): FieldError[] {
  const known = Object.keys(schema.entries)
  const may = known.length > 0 ? `known fields: ${known.join(', ')}` : 'no field is expected'
  return Object.keys(value)
    .filter((name) => !known.includes(name))
    .map((name) => ({ path: shorten(name), message: `unknown field; ${may}` }))
}

function complaint(issue: v.BaseIssue<unknown>): FieldError {
  const path = v.getDotPath(issue) ?? ''
  if (issue.received === 'undefined') return { path, message: 'is required' }
  return { path, message: `${issue.message}; got ${shorten(issue.received)}` }
}

const shorten = (text: string): string =>
  text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text
