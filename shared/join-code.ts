import type { Random } from './random.ts'

/** The 32 characters of Crockford's base32. Without I, L, O and U, which are read as other characters or make words. */
const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
const LENGTH = 6
const CODE = new RegExp(`^[${ALPHABET}]{${LENGTH}}$`)

/** Returns a random code for a room: six characters, 30 bits. */
export function newCode(random: Random): string {
  let code = ''
  for (const byte of random.bytes(LENGTH)) code += ALPHABET[byte & 31]
  return code
}

/**
 * Returns the code that a player has typed: in upper case, without spaces and hyphens, O read as 0, I and L read as 1. Undefined: no code looks
 * like that.
 */
export function normalizeCode(typed: string): string | undefined {
  const code = typed.toUpperCase().replace(/[\s-]/g, '').replace(/O/g, '0').replace(/[IL]/g, '1')
  return CODE.test(code) ? code : undefined
}

/** Key of the record of a code (`Records`). Its value is the `room_id` of the room, in UTF-8. */
export const codeKey = (projectId: string, code: string): string => `code:{${projectId}}:${code}`
