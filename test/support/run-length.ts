import { inject } from 'vitest'

declare module 'vitest' {
  interface ProvidedContext {
    /** Whether this is the system tier, where suites run at the length that the promise is made for. */
    fullLength: boolean
  }
}

/** How many runs a suite does that has two lengths: `full` in the system tier, else `short`. */
export const runLength = (short: number, full: number): number => (inject('fullLength') ? full : short)
