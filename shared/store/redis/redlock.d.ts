/** The part of `redlock` that is used here: its package does not lead the compiler to its own types. */
declare module 'redlock' {
  export class ResourceLockedError extends Error {}

  /** The operation found no majority; each attempt tells what every server answered. */
  export class ExecutionError extends Error {
    readonly attempts: readonly Promise<{ readonly votesAgainst: ReadonlyMap<unknown, Error> }>[]
  }

  export interface Lock {
    release(): Promise<unknown>
  }

  export default class Redlock {
    constructor(clients: Iterable<unknown>, settings: { readonly retryCount: number })
    acquire(resources: string[], duration_ms: number): Promise<Lock>
  }
}
