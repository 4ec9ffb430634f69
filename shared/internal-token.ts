import { createHash, timingSafeEqual } from 'node:crypto'

const digest = (text: string): Buffer => createHash('sha256').update(text).digest()

/**
 * What the processes of a deployment know each other, and operators, by: `INTERNAL_TOKEN`. It may be several tokens, separated by commas, so
 * that it can be changed process by process: the first is shown, all are accepted.
 */
export class InternalToken {
  /** The one to show to others; undefined: there is none. */
  readonly shown: string | undefined
  readonly #accepted: readonly Buffer[]

  /** Undefined, or nothing but commas: no one is accepted. */
  constructor(tokens: string | undefined) {
    const all = tokens?.split(',').filter((token) => token !== '') ?? []
    this.shown = all[0]
    this.#accepted = all.map(digest)
  }

  /** Whether what was shown is one of the tokens. Takes the same time whatever differs. */
  accepts(given: string | undefined): boolean {
    if (given === undefined) return false
    const shown = digest(given)
    return this.#accepted.filter((token) => timingSafeEqual(token, shown)).length > 0
  }
}
