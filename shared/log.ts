import { createRequire } from 'node:module'
import { type Logger, pino, stdSerializers } from 'pino'
import type { LogConfig } from './config.ts'
import type { LogLevel } from './log-levels.ts'
import { LogOutput, type LogStream } from './log-output.ts'

export type { Logger } from 'pino'

/** Fields that must never be logged; a safety net under code that does not log them in the first place. */
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

/** A room's state is an object and a secret; the state of a connection is a word and is not. */
const censor = (value: unknown, path: string[]): unknown =>
  path.at(-1) === 'state' && typeof value === 'string' ? value : '[redacted]'

/**
 * The logger of a process: JSON lines with an RFC 3339 time and the level as a word, or lines for people where `logFormat` says so, or is
 * `auto` and `stream` is a terminal. `fields` (such as `node_id`) are on every line. Lines that `stream` does not take are dropped and
 * counted, and `errors` gets one line about it.
 */
export function createLog(
  config: LogConfig,
  fields: Readonly<Record<string, string>> = {},
  stream: LogStream = process.stdout,
  errors: LogStream = process.stderr,
): Logger {
  const forPeople = config.logFormat === 'pretty' || (config.logFormat === 'auto' && stream.isTTY === true)
  const format = forPeople ? prettyFormat(stream.isTTY === true) : (line: string) => line
  const onRecovered = (dropped: number) => log.warn({ dropped }, 'log lines were dropped')
  const log: Logger = pino(
    {
      level: config.logLevel ?? 'info',
      base: fields,
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: stdSerializers.err, error: stdSerializers.err },
      redact: { paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`]), censor },
    },
    new LogOutput({ stream, errors, format, onRecovered }),
  )
  return log
}

/** Sets the level of a log and of all its children, until the process ends. */
export function setLogLevel(log: Logger, level: LogLevel): void {
  log.warn({ from: log.level, to: level }, 'log level changed')
  log.level = level
}

/** Number of lines that the process of `log` has dropped because they could not be written. */
export function droppedLines(log: Logger): number {
  const output: unknown = (log as unknown as Record<symbol, unknown>)[pino.symbols.streamSym]
  return output instanceof LogOutput ? output.dropped : 0
}

/** Returns a function that makes lines for people. Loads what only they need. */
function prettyFormat(colorize: boolean): (line: string) => string {
  const { prettyFactory }: typeof import('pino-pretty') = createRequire(import.meta.url)('pino-pretty')
  return prettyFactory({
    colorize,
    translateTime: 'SYS:HH:MM:ss.l',
    ignore: 'pid,hostname',
    singleLine: true,
  })
}
