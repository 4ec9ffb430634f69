import { createRequire } from 'node:module'
import { type DestinationStream, type Logger, pino, stdSerializers } from 'pino'
import type { LogConfig } from './config.ts'

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
 * `auto` and `output` is a terminal. `fields` (such as `node_id`) are on every line.
 */
export function createLog(
  config: LogConfig,
  fields: Readonly<Record<string, string>> = {},
  output: DestinationStream & { readonly isTTY?: boolean } = process.stdout,
): Logger {
  const forPeople = config.logFormat === 'pretty' || (config.logFormat === 'auto' && output.isTTY === true)
  return pino(
    {
      level: config.logLevel ?? 'info',
      base: fields,
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: stdSerializers.err, error: stdSerializers.err },
      redact: { paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`]), censor },
    },
    forPeople ? prettyStream(output) : output,
  )
}

/** Writes lines for people, each before the call returns, so that nothing is lost when the process ends. Loads what only they need. */
function prettyStream(output: DestinationStream & { readonly isTTY?: boolean }): DestinationStream {
  const { prettyFactory }: typeof import('pino-pretty') = createRequire(import.meta.url)('pino-pretty')
  const format = prettyFactory({
    colorize: output.isTTY === true,
    translateTime: 'SYS:HH:MM:ss.l',
    ignore: 'pid,hostname',
    singleLine: true,
  })
  return { write: (line) => output.write(format(line)) }
}
