/** The used parts of libsql, which has no types. */
declare module 'libsql' {
  interface Statement {
    get(...values: readonly (string | number)[]): unknown
    run(...values: readonly (string | number)[]): { readonly changes: number }
  }

  export default class Database {
    constructor(path: string)
    exec(sql: string): void
    prepare(sql: string): Statement
    close(): void
  }
}
