import type { Kind } from './kinds.ts'

/** A command of the command line that reads configuration. */
export type Command = 'control' | 'dataplane' | 'dev' | 'rekey'

/** One environment variable: everything there is to know about it. */
export interface Variable<T = unknown> {
  /** One sentence for `--help` and the operations page. */
  readonly meaning: string
  readonly kind: Kind<T>
  /** As it would be written in the environment; absent: not set. */
  readonly default?: string
  /** The default in words, where it is not a value (`the examples`). */
  readonly default_note?: string
  /** Which commands read it. */
  readonly used_by: readonly Command[]
  /** Which commands do not start without it. */
  readonly required_by?: readonly Command[]
  /** Its value is never shown. */
  readonly secret?: true
}

/** A row whose variable always has a value. */
export const withDefault = <T>(variable: Variable<T> & { readonly default: string }) => variable
/** A row whose variable may be missing. */
export const optional = <T>(variable: Variable<T>) => variable

/** Which commands read a variable. */
export const CONTROL: readonly Command[] = ['control', 'dev']
export const DATAPLANE: readonly Command[] = ['dataplane', 'dev']
export const BOTH: readonly Command[] = ['control', 'dataplane', 'dev']
export const ALL: readonly Command[] = [...BOTH, 'rekey']
