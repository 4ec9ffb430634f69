import { readFileSync } from 'node:fs'
import { type FaultStart, type Hook, MESSAGE_HOOKS } from './faults.ts'
import type { ProcessEnd } from './supervisor.ts'

/** A message whose bad code started more than once. */
export interface Rerun {
  readonly id: string
  readonly hook: Hook
  /** For each start its node, and how it ended. */
  readonly starts: readonly string[]
  /** True when it started in another process after it had ended one. */
  readonly regiven: boolean
}

/** The starts of bad code in all processes, in their order. */
export class FaultLog {
  readonly #path: string

  constructor(path: string) {
    this.#path = path
  }

  /** The bad code that started last in a process before its end: what ended it. Undefined: none ran there. */
  culprit({ pid }: ProcessEnd): FaultStart | undefined {
    return this.#read().findLast((start) => start.pid === pid)
  }

  /** The number of starts. */
  get length(): number {
    return this.#read().length
  }

  /** The hooks in which bad code has started. */
  get hooks(): ReadonlySet<Hook> {
    return new Set(this.#read().map(({ hook }) => hook))
  }

  /** All messages whose bad code started more than once. */
  reruns(ends: readonly ProcessEnd[]): readonly Rerun[] {
    const all = this.#read()
    const endedBy = new Map(ends.map((end) => [all.findLast(({ pid }) => pid === end.pid), end]))
    const byId = new Map<string, FaultStart[]>()
    for (const start of all)
      if ((MESSAGE_HOOKS as readonly Hook[]).includes(start.hook))
        byId.set(start.id, [...(byId.get(start.id) ?? []), start])
    return [...byId]
      .filter(([, starts]) => starts.length > 1)
      .map(([id, starts]) => {
        const first = starts.findIndex((start) => endedBy.has(start))
        return {
          id,
          hook: starts[0]!.hook,
          starts: starts.map((start) => `${start.node}: ${endedBy.get(start)?.how ?? 'no end'}`),
          regiven: first >= 0 && starts.slice(first).some(({ pid }) => pid !== starts[first]!.pid),
        }
      })
  }

  #read(): FaultStart[] {
    try {
      const lines = readFileSync(this.#path, 'utf8').trimEnd().split('\n')
      return lines.map((line) => JSON.parse(line) as FaultStart)
    } catch {
      // No bad code has started yet.
      return []
    }
  }
}
