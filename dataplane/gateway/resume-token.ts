import { hash, timingSafeEqual } from 'node:crypto'
import { randomToken } from '../../shared/ids.ts'
import type { Random } from '../../shared/random.ts'

/** Length of a resume token in characters: 192 random bits. */
const LENGTH = 32

/**
 * Right to resume a session. It has only hashes (SHA-256, base64url): of the current token and of the previous one, which tells a second use
 * from a guess. No two rights of a session have the same `token`, so it also identifies a record's writer.
 */
export interface ResumeRight {
  readonly token: string
  /** Hash of the previous token. Null until the first resume. */
  readonly used: string | null
  /** Number of resumes. */
  readonly turn: number
  /** True if the client is known to have the current token. Until then, it may have to resume with the previous one. */
  readonly confirmed: boolean
}

/**
 * Returns a new token for the client, and the right for the session. `resumeToken`: the token that it replaces; undefined for the first.
 * `resumes`: number of resumes, including this one.
 */
export function newResumeToken(
  random: Random,
  resumeToken?: string,
  resumes = 0,
): { readonly resume_token: string; readonly right: ResumeRight } {
  const next = randomToken(random, LENGTH)
  const used = resumeToken === undefined ? null : hash('sha256', resumeToken, 'base64url')
  // A client without its first token does not know the session, and cannot resume it.
  const confirmed = resumeToken === undefined
  return {
    resume_token: next,
    right: { token: hash('sha256', next, 'base64url'), used, turn: resumes, confirmed },
  }
}

/** True if a text has the form of a resume token. */
export const isResumeToken = (text: string): boolean => text.length === LENGTH && /^[\w-]+$/.test(text)

/** Compares a resume token with a right, in constant time. */
export function checkResumeToken(
  { token, used }: ResumeRight,
  resumeToken: string,
): 'current' | 'used' | 'wrong' {
  const given = hashOf(resumeToken)
  if (matches(given, token)) return 'current'
  return used !== null && matches(given, used) ? 'used' : 'wrong'
}

const hashOf = (token: string): Buffer => hash('sha256', token, 'buffer')

const matches = (given: Buffer, hash: string): boolean => {
  const known = Buffer.from(hash, 'base64url')
  return known.length === given.length && timingSafeEqual(given, known)
}
