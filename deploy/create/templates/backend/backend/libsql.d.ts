/** The used parts of libsql, which has no types. */
declare module 'libsql' {
  interface Statement {
    get(...values: readonly (string | number)[]): { readonly coins: number } | undefined
    run(...values: readonly (string | number)[]): { readonly changes: number }
  }

  export default class Database {
    constructor(path: string)
    exec(sql: string): void
    prepare(sql: string): Statement
    /** Returns a function that calls `work` in a transaction. */
    transaction(work: () => void): () => void
  }
}
