import type { Clock } from '../shared/clock.ts'
import type { Recorder } from './recorder.ts'
import type { Check, Figure, Incident, Percentiles, Timing } from './result.ts'
import type { Crowd, LocalService, Stage } from './scenario.ts'

/** What a stage is made of. */
export interface StageParts {
  readonly values: Readonly<Record<string, number | string>>
  readonly crowd: Crowd
  readonly local: LocalService | undefined
  readonly recorder: Recorder
  readonly clock: Clock
  readonly signal: AbortSignal
  /** A phase begins that should take so many seconds. */
  readonly on_phase: (name: string, seconds: number) => void
  readonly on_incident: (incident: Incident) => void
}

/** Where a scenario is played. */
export class RunStage implements Stage {
  readonly crowd: Crowd
  readonly figures: Figure[] = []
  readonly checks: Check[] = []
  readonly incidents: Incident[] = []
  readonly #parts: StageParts
  readonly #start: number

  constructor(parts: StageParts) {
    this.#parts = parts
    this.crowd = parts.crowd
    this.#start = parts.clock.monotonic()
  }

  /** Seconds since the start. */
  get at(): number {
    return (this.#parts.clock.monotonic() - this.#start) / 1000
  }

  get local(): LocalService {
    const { local } = this.#parts
    if (!local) throw new Error('the processes of a service that was not started with --local are left alone')
    return local
  }

  number(option: string): number {
    const value = this.#value(option)
    if (typeof value !== 'number') throw new Error(`the option ${option} is no number`)
    return value
  }

  text(option: string): string {
    return String(this.#value(option))
  }

  async phase<T>(name: string, seconds: number, work: () => Promise<T>): Promise<T> {
    const { recorder, on_phase } = this.#parts
    await recorder.enter(name)
    on_phase(name, seconds)
    const result = await work()
    await recorder.gather()
    return result
  }

  incident(text: string): void {
    const incident = { at: this.at, text }
    this.incidents.push(incident)
    this.#parts.on_incident(incident)
  }

  figure(figure: Figure): void {
    this.figures.push(figure)
  }

  check(check: Check): void {
    this.checks.push(check)
  }

  timed(timing: Timing, phase: string): Percentiles {
    return this.#parts.recorder.timed(timing, phase)
  }

  pass(seconds: number): Promise<void> {
    const { clock, signal } = this.#parts
    return new Promise((resolve, reject) => {
      signal.throwIfAborted()
      const cancel = clock.schedule(seconds * 1000, () => {
        signal.removeEventListener('abort', interrupt)
        resolve()
      })
      const interrupt = (): void => {
        cancel()
        reject(signal.reason)
      }
      signal.addEventListener('abort', interrupt, { once: true })
    })
  }

  #value(option: string): number | string {
    const value = this.#parts.values[option]
    if (value === undefined) throw new Error(`the scenario has no option ${option}`)
    return value
  }
}
