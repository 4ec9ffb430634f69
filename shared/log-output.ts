import type { DestinationStream } from 'pino'

/** Where log lines go: `process.stdout`, or anything with `write`. */
export interface LogStream {
  /** Writes one line. `done` gets the error if the line could not be written. */
  write(line: string, done?: (error?: Error | null) => void): unknown
  on?(event: 'error', listener: (error: Error) => void): unknown
  listeners?(event: 'error'): readonly unknown[]
  /** Characters that wait for a reader. */
  readonly writableLength?: number
  readonly isTTY?: boolean
}

/** Maximum number of characters that wait for a reader of the log. */
const MAX_WAITING = 4 * 1024 * 1024

/** What a log output needs. */
interface LogOutputParts {
  readonly stream: LogStream
  /** Gets one line for people when lines begin to be dropped, if it works. */
  readonly errors: LogStream
  /** Makes the text that is written of a JSON line. */
  readonly format: (line: string) => string
  /** Called when a line could be written again after `dropped` lines could not. */
  readonly onRecovered: (dropped: number) => void
}

/**
 * Destination of log lines that never ends its process. It drops and counts the lines that the stream does not take (full disk, closed pipe),
 * and those for which a stalled reader leaves no room. A dropped line is lost.
 */
export class LogOutput implements DestinationStream {
  readonly #parts: LogOutputParts
  #dropped = 0
  /** Value of `#dropped` when the present failure began. Undefined: lines can be written. */
  #failingSince: number | undefined
  /** The reader has stalled. Lines are dropped until it has read everything that waits, so that a slow reader costs one report, not many. */
  #stalled = false
  /** The last write failed. A full disk may have taken the beginning of that line. */
  #torn = false

  constructor(parts: LogOutputParts) {
    this.#parts = parts
    for (const stream of [parts.stream, parts.errors])
      if (stream.listeners?.('error').includes(ignore) === false) stream.on?.('error', ignore)
  }

  /** Number of lines that were dropped since the start. */
  get dropped(): number {
    return this.#dropped
  }

  write(line: string): void {
    const { stream, format } = this.#parts
    const text = format(line)
    const waiting = stream.writableLength ?? 0
    this.#stalled = this.#stalled ? waiting > 0 : waiting + text.length > MAX_WAITING
    if (this.#stalled) this.#drop(`its reader has stalled, ${waiting} characters wait`)
    // Otherwise the first line after the failure would continue the torn one, and could not be parsed.
    else stream.write(this.#torn ? `\n${text}` : text, this.#written)
  }

  readonly #written = (error?: Error | null): void => {
    this.#torn = Boolean(error)
    if (error) this.#drop(error.message)
    else if (this.#failingSince !== undefined && !this.#stalled) {
      const dropped = this.#dropped - this.#failingSince
      this.#failingSince = undefined
      this.#parts.onRecovered(dropped)
    }
  }

  #drop(why: string): void {
    const first = this.#failingSince === undefined
    this.#failingSince ??= this.#dropped
    this.#dropped += 1
    // When stderr has stalled as well, the line would only take memory.
    if (first && (this.#parts.errors.writableLength ?? 0) === 0)
      this.#parts.errors.write(
        `roomful (process ${process.pid}): the log cannot be written: ${why}; lines are dropped until it can be\n`,
      )
  }
}

/** An `error` event without a listener ends the process. `write` gets the same error. */
const ignore = (): void => undefined
