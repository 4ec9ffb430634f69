import { inject } from 'vitest'

declare module 'vitest' {
  interface ProvidedContext {
    /** True with `npm run test:long`. */
    fullLength: boolean
  }
}

/** True with `npm run test:long`. */
export const isFullLength = (): boolean => inject('fullLength')

/** Returns the number of cases of a suite, such as random histories: `full` with `npm run test:long`, else `short`. */
export const runLength = (short: number, full: number): number => (isFullLength() ? full : short)
