import { createRequire } from 'node:module'
import { type DestinationStream, type Logger, pino } from 'pino'
import type { Clock } from './clock.ts'

/** Levels of a log, the most verbose first. */
export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** Log configuration of a process. */
export interface LogConfig {
  readonly logLevel?: LogLevel | undefined
}

export type { Logger } from 'pino'

/** Fields that are never logged. This is a safety net: the code does not log them in the first place. */
const SECRET_FIELDS = [
  'state',
  'token',
  'resume_token',
  'internal_token',
  'operator_tokens',
  'control_api_tokens',
  'keyring_secret',
  'secret',
  'redis_url',
  'authorization',
  'headers',
  'data',
  'payload',
]

/** A room's state is an object and secret. The state of a connection is a word and not secret. */
const censor = (value: unknown, path: string[]): unknown =>
  path.at(-1) === 'state' && typeof value === 'string' ? value : '[redacted]'

/**
 * Returns the logger of a process. It writes JSON lines with an RFC 3339 time and the level as a word, or lines for people if `stream` is a
 * terminal. `fields` (such as `node_id`) are on every line. Lines that `stream` rejects are dropped and counted, and `errors` gets one line
 * about them.
 */
export function createLog(
  config: LogConfig,
  fields: Readonly<Record<string, string>> = {},
  stream: LogStream = process.stdout,
  errors: LogStream = process.stderr,
): Logger {
  const format = stream.isTTY === true ? prettyFormat() : (line: string) => line
  const onRecovered = (dropped: number) => log.warn({ dropped }, 'log lines were dropped')
  const log: Logger = pino(
    {
      level: config.logLevel ?? 'info',
      base: fields,
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }), log: withErrors },
      // Replaces the default of pino, which logs all properties of an error.
      serializers: { err: (logged) => logged },
      redact: { paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`]), censor },
    },
    new LogOutput({ stream, errors, format, onRecovered }),
  )
  return log
}

/** An error in a log line. */
interface LoggedError {
  readonly name?: string | undefined
  readonly message: string | undefined
  readonly stack?: string | undefined
  readonly code?: string | number | undefined
  readonly cause?: LoggedError | undefined
}

/** Maximum number of characters of each field, and of causes of an error, in a log line. */
const MAX_NAME = 100
const MAX_MESSAGE = 2000
const MAX_STACK = 8000
const MAX_CAUSES = 3

/** Returns the fields of a log line with all errors in their loggable form. A value of `err` is an error, whatever was thrown. */
function withErrors(fields: Record<string, unknown>): Record<string, unknown> {
  const entries = Object.entries(fields)
  if (!entries.some(([name, value]) => isError(name, value))) return fields
  return Object.fromEntries(
    entries.map(([name, value]) => [name, isError(name, value) ? loggedError(value) : value]),
  )
}

function isError(name: string, value: unknown): boolean {
  if (name === 'err') return value !== undefined
  try {
    return value instanceof Error
  } catch {
    return false // A proxy of room code.
  }
}

/**
 * Returns the loggable part of a thrown value. Libraries attach the request with its headers, or a whole command, to their errors, so no other
 * property may get into the log. Never throws, although reading the value may.
 */
function loggedError(error: unknown, causes = MAX_CAUSES): LoggedError {
  if (typeof error !== 'object' || error === null) return { message: shortened(String(error), MAX_MESSAGE) }
  const read = (name: string, max: number): string | undefined => {
    const value = propertyOf(error, name)
    return typeof value === 'string' ? shortened(value, max) : undefined
  }
  const name = read('name', MAX_NAME)
  const className = propertyOf(propertyOf(error, 'constructor'), 'name')
  const isPlain = name === undefined || name === 'Error'
  const code = propertyOf(error, 'code')
  const cause = propertyOf(error, 'cause')
  const hasCause = cause !== undefined && cause !== null && causes > 0
  return {
    name: isPlain && typeof className === 'string' ? shortened(className, MAX_NAME) : name,
    message: read('message', MAX_MESSAGE),
    stack: read('stack', MAX_STACK),
    code: typeof code === 'number' ? code : read('code', MAX_NAME),
    cause: hasCause ? loggedError(cause, causes - 1) : undefined,
  }
}

/** Returns a property of a value. Undefined: there is none, or reading it throws. */
function propertyOf(value: unknown, name: string): unknown {
  try {
    return (value as Readonly<Record<string, unknown>> | null | undefined)?.[name]
  } catch {
    return undefined
  }
}

const shortened = (text: string, max: number): string => (text.length > max ? `${text.slice(0, max)}…` : text)

/** Sets the level of a log and of all its children, until the process ends. */
export function setLogLevel(log: Logger, level: LogLevel): void {
  log.warn({ from: log.level, to: level }, 'log level changed')
  log.level = level
}

/** Returns the number of lines that `log` has dropped because they could not be written. */
export function droppedLines(log: Logger): number {
  const output: unknown = (log as unknown as Record<symbol, unknown>)[pino.symbols.streamSym]
  return output instanceof LogOutput ? output.dropped : 0
}

/** Returns a function that formats lines for people. Loads its modules only then. */
function prettyFormat(): (line: string) => string {
  const { prettyFactory }: typeof import('pino-pretty') = createRequire(import.meta.url)('pino-pretty')
  return prettyFactory({
    colorize: true,
    translateTime: 'SYS:HH:MM:ss.l',
    ignore: 'pid,hostname',
    singleLine: true,
  })
}

/** Destination of log lines: `process.stdout`, or any object with `write`. */
interface LogStream {
  /** Writes one line. `done` gets the error if the line could not be written. */
  write(line: string, done?: (error?: Error | null) => void): unknown
  on?(event: 'error', listener: (error: Error) => void): unknown
  listeners?(event: 'error'): readonly unknown[]
  /** Number of buffered characters. */
  readonly writableLength?: number
  readonly isTTY?: boolean
}

/** Maximum number of buffered characters. */
const MAX_WAITING = 4 * 1024 * 1024

/** Options of a log output. */
interface LogOutputParts {
  readonly stream: LogStream
  /** Gets one line for people when the output begins to drop lines, if it works. */
  readonly errors: LogStream
  /** Formats a JSON line. */
  readonly format: (line: string) => string
  /** Called when a line could be written again after `dropped` lines. */
  readonly onRecovered: (dropped: number) => void
}

/**
 * Destination of log lines that never ends its process. It drops and counts lines that the stream does not accept (full disk, closed pipe),
 * and lines above the buffer limit of a stalled reader.
 */
export class LogOutput implements DestinationStream {
  readonly #parts: LogOutputParts
  #dropped = 0
  /** Value of `#dropped` at the start of the current failure. Undefined: lines can be written. */
  #failingSince: number | undefined
  /**
   * True while a stalled reader has unread lines. Lines are dropped until it has read all, so that a slow reader causes one report, not
   * many.
   */
  #stalled = false
  /** True if the last write failed. A full disk may have stored the beginning of that line. */
  #torn = false

  constructor(parts: LogOutputParts) {
    this.#parts = parts
    for (const stream of [parts.stream, parts.errors])
      if (stream.listeners?.('error').includes(ignore) === false) stream.on?.('error', ignore)
  }

  /** Number of dropped lines since the start. */
  get dropped(): number {
    return this.#dropped
  }

  write(line: string): void {
    const { stream, format } = this.#parts
    const text = format(line)
    const waiting = stream.writableLength ?? 0
    this.#stalled = this.#stalled ? waiting > 0 : waiting + text.length > MAX_WAITING
    if (this.#stalled) this.#drop(`its reader has stalled, ${waiting} characters wait`)
    // Otherwise the first line after the failure would continue the torn line, and could not be parsed.
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
    // If stderr has stalled as well, the line would only use memory.
    if (first && (this.#parts.errors.writableLength ?? 0) === 0)
      this.#parts.errors.write(
        `roomful (process ${process.pid}): the log cannot be written: ${why}; lines are dropped until it can be\n`,
      )
  }
}

/** Without a listener, an `error` event ends the process. `write` gets the same error. */
const ignore = (): void => undefined

/** Maximum number of remembered kinds. When it is exceeded, all start again. */
const MAX_KINDS = 1000

/** Passes each kind of event once in `quietMs`, such as a log line about an error that repeats. */
export class Quiet {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #quietMs: number
  readonly #kinds = new Map<string, { readonly until: number; suppressed: number }>()

  constructor(clock: Pick<Clock, 'monotonic'>, quietMs: number) {
    this.#clock = clock
    this.#quietMs = quietMs
  }

  /** Returns the number of suppressed events of this kind since the last one that passed. Undefined: this one is suppressed too. */
  pass(kind: string): number | undefined {
    const now = this.#clock.monotonic()
    const last = this.#kinds.get(kind)
    if (last && now < last.until) {
      last.suppressed++
      return undefined
    }
    if (this.#kinds.size >= MAX_KINDS) this.#kinds.clear()
    this.#kinds.set(kind, { until: now + this.#quietMs, suppressed: 0 })
    return last?.suppressed ?? 0
  }
}
