import type { Json } from '../json.ts'

/** One RFC 6902 (JSON Patch) operation; `path` is an RFC 6901 pointer. roomful uses these three only. */
export type Operation =
  | { op: 'add'; path: string; value: Json }
  | { op: 'replace'; path: string; value: Json }
  | { op: 'remove'; path: string }
