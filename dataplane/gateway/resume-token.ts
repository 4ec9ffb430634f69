import { createHash, timingSafeEqual } from 'node:crypto'
import { randomToken } from '../../shared/ids.ts'
import type { Random } from '../../shared/random.ts'

/** 192 random bits. */
const LENGTH = 32

/**
 * The right to resume one session: single use. Keeps hashes only, of the token in force and of the one used last, so that a second use
 * can be told from a guess.
 */
export class ResumeToken {
  readonly #random: Random
  #current: Uint8Array | undefined
  #used: Uint8Array | undefined

  constructor(random: Random) {
    this.#random = random
  }

  /** A new token in place of the one in force, which counts as used from now on. */
  rotate(): string {
    const token = randomToken(this.#random, LENGTH)
    this.#used = this.#current
    this.#current = hash(token)
    return token
  }

  /** What `token` is: good for one `rotate`, used already, or wrong. Takes the same time whatever it is compared with. */
  check(token: string): 'current' | 'used' | 'wrong' {
    const given = hash(token)
    if (this.#current && timingSafeEqual(given, this.#current)) return 'current'
    if (this.#used && timingSafeEqual(given, this.#used)) return 'used'
    return 'wrong'
  }
}

const hash = (token: string): Uint8Array => createHash('sha256').update(token).digest()
