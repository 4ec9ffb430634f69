import * as v from 'valibot'

/** So many rooms, and so many sessions, a node tells of at most when it is asked what matches. */
export const MOST_MATCHES = 200
/** What is searched for has so many characters at most. */
export const LONGEST_TEXT = 200

const COUNT = v.pipe(v.number(), v.integer(), v.minValue(0))

const FOUND = {
  rooms: v.array(
    v.object({
      project_id: v.string(),
      room_id: v.string(),
      member_count: COUNT,
      connected_count: COUNT,
    }),
  ),
  sessions: v.array(
    v.object({
      project_id: v.string(),
      session_id: v.string(),
      sub: v.nullable(v.string()),
      rooms: v.array(v.string()),
    }),
  ),
  found: v.object({ rooms: COUNT, sessions: COUNT }),
}

/** What is said between nodes: a question with a number of its own, and the answer to it. JSON in UTF-8. */
const MESSAGE = v.variant('kind', [
  v.object({
    kind: v.literal('ask'),
    search: v.string(),
    from: v.string(),
    q: v.pipe(v.string(), v.minLength(1), v.maxLength(LONGEST_TEXT)),
    limit: v.pipe(COUNT, v.maxValue(MOST_MATCHES)),
  }),
  v.object({ kind: v.literal('answer'), search: v.string(), from: v.string(), ...FOUND }),
])
const FOUND_OBJECT = v.object(FOUND)

export type SearchMessage = v.InferOutput<typeof MESSAGE>
/** What one node has that matches, and how much there is beyond the limit. */
export type NodeMatches = v.InferOutput<typeof FOUND_OBJECT>

export const encodeSearch = (message: SearchMessage): Uint8Array =>
  new TextEncoder().encode(JSON.stringify(message))

/** Throws for what is no such message; the error says where it is wrong, not what it is: there are players in it. */
export function decodeSearch(bytes: Uint8Array): SearchMessage {
  const read = v.safeParse(MESSAGE, JSON.parse(new TextDecoder().decode(bytes)))
  if (read.success) return read.output
  const [issue] = read.issues
  throw new TypeError(`${v.getDotPath(issue) ?? 'the message'}: ${issue.message}`)
}
