/** The used part of `redlock`, whose package does not export its types correctly. */
declare module 'redlock' {
  export class ResourceLockedError extends Error {}

  /** The operation found no majority. Each attempt contains the answers of the servers. */
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
