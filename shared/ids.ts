import type { Random } from './random.ts'

/** What an id names; the prefix makes a pasted id tell its kind. */
export type IdPrefix = 'prj' | 'key' | 'ses' | 'mem' | 'node' | 'req'

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
