import { Problem } from './problem.ts'
import { invalid } from './validate.ts'

/** The largest request body, in bytes. */
export const MAX_BODY_BYTES = 64 * 1024

/**
 * The JSON value in the body of `request`; an empty body counts as `{}`. Rejects with a `Problem`: payload_too_large before more than the
 * limit is kept, unsupported_media_type, or invalid_request.
 */
export async function readJson(request: Request): Promise<unknown> {
  const bytes = await readBytes(request)
  if (bytes.length === 0) return {}
  const type = request.headers.get('content-type') ?? ''
  if (!/^application\/json\s*(?:;|$)/i.test(type))
    throw new Problem(
      'unsupported_media_type',
      type === ''
        ? 'The body has no content-type; send application/json.'
        : `The body is ${type.slice(0, 100)}; send application/json.`,
    )
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch {
    throw invalid([{ path: '', message: 'the body is not valid JSON in UTF-8' }])
  }
}

async function readBytes(request: Request): Promise<Uint8Array> {
  if (Number(request.headers.get('content-length') ?? 0) > MAX_BODY_BYTES) throw tooLarge()
  if (request.body === null) return new Uint8Array()
  const chunks: Uint8Array[] = []
  let length = 0
  try {
    for await (const chunk of request.body) {
      length += chunk.length
      if (length > MAX_BODY_BYTES) break
      chunks.push(chunk)
    }
  } catch {
    throw invalid([{ path: '', message: 'the body ends before its end' }])
  }
  if (length > MAX_BODY_BYTES) throw tooLarge()
  return Buffer.concat(chunks)
}

const tooLarge = (): Problem =>
  new Problem('payload_too_large', `The body is larger than ${MAX_BODY_BYTES} bytes.`)
