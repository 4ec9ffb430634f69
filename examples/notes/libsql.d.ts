/** What is used of libsql, which only this example needs: all else compiles and runs without it. */
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
