import type { Random } from './random.ts'

/** What an id names; the prefix makes a pasted id tell its kind. */
export type IdPrefix = 'prj' | 'key' | 'ses' | 'mem' | 'node' | 'req' | 'ntc'

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

/** A URL-safe string of `length` characters, 6 random bits each. */
export function randomToken(random: Random, length: number): string {
  let token = ''
  for (const byte of random.bytes(length)) token += ALPHABET[byte & 63]
  return token
}

/** What an id of this kind looks like: 16 characters behind the prefix in those that are made, 1 to 60 in those that are read. */
export const idPattern = (prefix: IdPrefix): RegExp => new RegExp(`^${prefix}_[\\w-]{1,60}$`)

/** A new opaque id such as `prj_…`: 16 characters, 96 random bits behind the prefix. */
export const newId = (prefix: IdPrefix, random: Random): string => `${prefix}_${randomToken(random, 16)}`

const REQUEST_ID = /^[\w.:-]{1,128}$/

/** Returns the id of a request: `given`, the caller's `x-request-id`, when it is well-formed, else a new one. */
export const requestIdOf = (given: string | undefined, random: Random): string =>
  given !== undefined && REQUEST_ID.test(given) ? given : newId('req', random)

/**
 * A node id is the node's name (`NODE_ID`) and its boot, such as `node-1~f3Kx9a_Q`: another one after each start of a process, whatever its
 * name. Nodes know each other by it, so what an earlier process had (rooms, members' sockets, sessions, a channel, a lease) is never taken
 * for that of a later one with its name. Operators and clients see the name.
 */
const BOOT_AT = '~'
const BOOT_LENGTH = 8

/** The id of a process that starts now under a name. */
export const newNodeId = (name: string, random: Random): string =>
  `${name}${BOOT_AT}${randomToken(random, BOOT_LENGTH)}`

/** The name in a node id. */
export function nodeName(nodeId: string): string {
  const at = nodeId.lastIndexOf(BOOT_AT)
  return at < 0 ? nodeId : nodeId.slice(0, at)
}

/** The 32 characters of Crockford's base32. Without I, L, O and U, which are read as other characters or make words. */
const CODE_ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
const CODE_LENGTH = 6
const CODE = new RegExp(`^[${CODE_ALPHABET}]{${CODE_LENGTH}}$`)

/** Returns a random code for a room: six characters, 30 bits. */
export function newCode(random: Random): string {
  let code = ''
  for (const byte of random.bytes(CODE_LENGTH)) code += CODE_ALPHABET[byte & 31]
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
