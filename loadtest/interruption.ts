import { constants } from 'node:os'
import type { Clock } from '../shared/clock.ts'

/** What ends a run before its time: Ctrl-C, being told to end, and the loss of the terminal. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
type EndingSignal = (typeof SIGNALS)[number]

/** A terminal and npm both pass the same Ctrl-C on: what comes so soon after the first is the same. */
const SAME_MS = 500

export interface InterruptionParts {
  readonly process: Pick<NodeJS.Process, 'on'>
  readonly clock: Clock
  /** At the first signal: the run is to end in order. */
  readonly on_first: () => void
  /** At the next one: it is to end at once, with this exit code. */
  readonly on_second: (exit_code: number) => void
}

/** The wish to end a run before its time: the first one in order, the second one at once. */
export class Interruption {
  readonly #controller = new AbortController()
  readonly #parts: InterruptionParts
  #first: { readonly signal: EndingSignal; readonly at: number } | undefined

  constructor(parts: InterruptionParts) {
    this.#parts = parts
    for (const signal of SIGNALS) parts.process.on(signal, () => this.#hear(signal))
  }

  /** Fires at the first signal. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** As a shell tells it (130 after Ctrl-C, 143 after SIGTERM); undefined: there was no signal. */
  get exit_code(): number | undefined {
    return this.#first && exitCode(this.#first.signal)
  }

  #hear(signal: EndingSignal): void {
    const { clock, on_first, on_second } = this.#parts
    const at = clock.monotonic()
    if (this.#first === undefined) {
      this.#first = { signal, at }
      on_first()
      this.#controller.abort(new Error('interrupted'))
    } else if (at - this.#first.at >= SAME_MS) on_second(exitCode(signal))
  }
}

const exitCode = (signal: EndingSignal): number => 128 + constants.signals[signal]
