import type { Random } from './random.ts'

/** Kind of an id, shown by its prefix. */
export type IdPrefix = 'prj' | 'key' | 'ses' | 'mem' | 'node' | 'req' | 'ntc'

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

/** Returns a URL-safe string of `length` characters with 6 random bits each. */
export function randomToken(random: Random, length: number): string {
  let token = ''
  for (const byte of random.bytes(length)) token += ALPHABET[byte & 63]
  return token
}

/** Returns the pattern of an id of this kind. Made ids have 16 characters after the prefix; accepted are 1 to 60. */
export const idPattern = (prefix: IdPrefix): RegExp => new RegExp(`^${prefix}_[\\w-]{1,60}$`)

/** Returns a new id such as `prj_…`, with 16 characters (96 random bits) after the prefix. */
export const newId = (prefix: IdPrefix, random: Random): string => `${prefix}_${randomToken(random, 16)}`

const REQUEST_ID = /^[\w.:-]{1,128}$/

/** Returns the id of a request: the caller's `x-request-id` (`given`) if it is valid, otherwise a new id. */
export const requestIdOf = (given: string | undefined, random: Random): string =>
  given !== undefined && REQUEST_ID.test(given) ? given : newId('req', random)

/**
 * A node id is the node's name (`NODE_ID`) and a random boot id, such as `node-1~f3Kx9a_Q`. It is different after each start of a process.
 * Nodes identify each other by it, so the rooms, sockets, sessions, channel and lease of an earlier process never count as those of a later
 * one with the same name. Operators and clients see the name.
 */
const BOOT_AT = '~'
const BOOT_LENGTH = 8

/** Returns the id of a process that starts now under a name. */
export const newNodeId = (name: string, random: Random): string =>
  `${name}${BOOT_AT}${randomToken(random, BOOT_LENGTH)}`

/** Returns the name in a node id. */
export function nodeName(nodeId: string): string {
  const at = nodeId.lastIndexOf(BOOT_AT)
  return at < 0 ? nodeId : nodeId.slice(0, at)
}

/** The 32 characters of Crockford's base32, without I, L, O and U, which look like other characters or form words. */
const CODE_ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
const CODE_LENGTH = 6
const CODE = new RegExp(`^[${CODE_ALPHABET}]{${CODE_LENGTH}}$`)

/** Returns a random code for a room: six characters, 30 bits. */
export function newCode(random: Random): string {
  let code = ''
  for (const byte of random.bytes(CODE_LENGTH)) code += CODE_ALPHABET[byte & 31]
  return code
}

/** Characters in a typed code that mean nothing: spaces, also of no width, all dashes (U+30FC is that of Japanese keyboards), and `#`. */
const BETWEEN = /[\s\p{Cf}\p{Pd}\u2212\u30fc#]/gu

/**
 * Returns the code in a player's input: in upper case, full-width characters as ordinary ones, with O as 0, I and L as 1, and without what is
 * between and before its characters. Undefined: the input is not a code.
 */
export function normalizeCode(typed: string): string | undefined {
  const plain = typed.normalize('NFKC').toUpperCase().replace(BETWEEN, '')
  const code = plain.replace(/O/g, '0').replace(/[IL]/g, '1')
  return CODE.test(code) ? code : undefined
}

/** Key of the record of a code (`Records`). Its value is the `room_id` of the room, in UTF-8. */
export const codeKey = (projectId: string, code: string): string => `code:{${projectId}}:${code}`
