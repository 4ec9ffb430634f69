import { readFileSync } from 'node:fs'

/** The tables of docs/protocol.md §11 and §12. */

const page = readFileSync(new URL('../../docs/protocol.md', import.meta.url), 'utf8')
const [, errors = ''] = page.split('\n## 11. Errors\n')

/** Error code → retryable. */
export const ERROR_CODES: Readonly<Record<string, boolean>> = Object.fromEntries(
  [...errors.split('\n## ')[0]!.matchAll(/^\| `(\w+)` \| (yes|no) \|/gm)].map(([, code, retryable]) => [
    code,
    retryable === 'yes',
  ]),
)

/** The codes a connection may be closed with, by a name that says why. */
export const CLOSE = {
  goodbye: 1000,
  no_room_for_more: 1013,
  protocol_error: 4000,
  unauthenticated: 4001,
  token_expired: 4002,
  key_revoked: 4003,
  hello_timeout: 4004,
  taken_over: 4005,
  rate_limited: 4006,
  slow_reader: 4007,
  too_large: 4008,
  resume_failed: 4009,
  draining: 4100,
  room_unavailable: 4101,
} as const
