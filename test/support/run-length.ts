import { inject } from 'vitest'

declare module 'vitest' {
  interface ProvidedContext {
    /** True with `npm run test:long`. */
    fullLength: boolean
  }
}

/** Returns the number of random histories of a suite: `full` with `npm run test:long`, else `short`. */
export const runLength = (short: number, full: number): number => (inject('fullLength') ? full : short)
