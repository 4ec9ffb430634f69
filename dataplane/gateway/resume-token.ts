import { createHash, timingSafeEqual } from 'node:crypto'
import { randomToken } from '../../shared/ids.ts'
import type { Random } from '../../shared/random.ts'

/** 192 random bits. */
const LENGTH = 32

/**
 * Who may resume a session. Only hashes are kept (SHA-256, base64url), of the token in force and of the one it replaced, so that a
 * second use can be told from a guess. No two rights of a session have the same `token`: it also tells whose record one is.
 */
export interface ResumeRight {
  readonly token: string
  /** Null until the first resume. */
  readonly used: string | null
  /** How often the session was resumed. */
  readonly turn: number
  /** Whether the client is known to have the token in force. Until it is, it may have to come back with the used one. */
  readonly confirmed: boolean
}

/** A token just made: the client gets `resume_token`, and the session has `right`. */
export interface NewResumeToken {
  readonly resume_token: string
  readonly right: ResumeRight
}

/** A first token, or one in place of `resume_token`, which is used with that; `turn`: how often the session is resumed with that. */
export function newResumeToken(random: Random, resumeToken?: string, turn = 0): NewResumeToken {
  const next = randomToken(random, LENGTH)
  const used = resumeToken === undefined ? null : hashOf(resumeToken).toString('base64url')
  // Without its first token a client knows of no session: there is nothing to come back to.
  const confirmed = resumeToken === undefined
  return { resume_token: next, right: { token: hashOf(next).toString('base64url'), used, turn, confirmed } }
}

/** Whether a text may be a resume token at all. */
export const isResumeToken = (text: string): boolean => text.length === LENGTH && /^[\w-]+$/.test(text)

/** What `resume_token` is: good for one resume, used already, or wrong. Takes the same time whatever it is compared with. */
export function checkResumeToken(
  { token, used }: Pick<ResumeRight, 'token' | 'used'>,
  resumeToken: string,
): 'current' | 'used' | 'wrong' {
  const given = hashOf(resumeToken)
  if (matches(given, token)) return 'current'
  return used !== null && matches(given, used) ? 'used' : 'wrong'
}

const hashOf = (token: string): Buffer => createHash('sha256').update(token).digest()

const matches = (given: Buffer, hash: string): boolean => {
  const known = Buffer.from(hash, 'base64url')
  return known.length === given.length && timingSafeEqual(given, known)
}
