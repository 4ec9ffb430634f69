import type { TracingConfig } from '../tracing/config.ts'
import type { Environment, Problem, ReadFile } from './environment.ts'
import { TRACING_VARIABLES } from './tracing-variables.ts'
import { findTypos } from './typos.ts'
import type { Values, VariableName } from './variables.ts'

/** What the environment says of traces. */
export interface TracingReading {
  /** Whether a problem of some variable is one of this process. */
  concerns(problem: Problem): boolean
  /** What is wrong only in combination, or in a file. */
  readonly problems: readonly Problem[]
  /** Sentences for the log. */
  readonly warnings: readonly string[]
  /** For a process that calls itself `service_name` unless told otherwise; undefined: traces are off. To be called when nothing is wrong. */
  configOf(service_name: string): TracingConfig | undefined
}

/**
 * Looks at the variables of OpenTelemetry together. They are set for whole machines: while traces are off here, they are for other
 * programs and whatever they say is right.
 */
export function readTracing(values: Partial<Values>, env: Environment, read_file: ReadFile): TracingReading {
  if (values.OTEL_TRACES_EXPORTER === 'none' || values.OTEL_SDK_DISABLED === true)
    return {
      concerns: ({ name }) =>
        !name.startsWith('OTEL_') || (name === 'OTEL_TRACES_EXPORTER' && !values.OTEL_SDK_DISABLED),
      problems: [],
      warnings: [],
      configOf: () => undefined,
    }
  return {
    concerns: () => true,
    problems: [...tooLargeBatch(values), ...tlsProblems(values, read_file)],
    warnings: [...uselessRatio(values, env), ...unread(env)],
    configOf: (service_name) => tracingConfig(values as Values, read_file, service_name),
  }
}

function tracingConfig(values: Values, read_file: ReadFile, service_name: string): TracingConfig {
  const root = values.OTEL_EXPORTER_OTLP_ENDPOINT.replace(/\/$/, '')
  const attributes = values.OTEL_RESOURCE_ATTRIBUTES ?? {}
  return {
    url: values.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ?? `${root}/v1/traces`,
    headers: { ...values.OTEL_EXPORTER_OTLP_HEADERS, ...values.OTEL_EXPORTER_OTLP_TRACES_HEADERS },
    timeout_ms: values.OTEL_EXPORTER_OTLP_TRACES_TIMEOUT ?? values.OTEL_EXPORTER_OTLP_TIMEOUT,
    compression: values.OTEL_EXPORTER_OTLP_TRACES_COMPRESSION ?? values.OTEL_EXPORTER_OTLP_COMPRESSION,
    tls: Object.fromEntries(tlsFiles(values).map(({ part, path }) => [part, read_file(path)])),
    service_name: values.OTEL_SERVICE_NAME ?? attributes['service.name'] ?? service_name,
    attributes,
    sampler: values.OTEL_TRACES_SAMPLER,
    ratio: values.OTEL_TRACES_SAMPLER_ARG,
    batches: {
      delay_ms: values.OTEL_BSP_SCHEDULE_DELAY,
      patience_ms: values.OTEL_BSP_EXPORT_TIMEOUT,
      queue: values.OTEL_BSP_MAX_QUEUE_SIZE,
      size: Math.min(values.OTEL_BSP_MAX_EXPORT_BATCH_SIZE, values.OTEL_BSP_MAX_QUEUE_SIZE),
    },
  }
}

const TLS = { ca: 'CERTIFICATE', cert: 'CLIENT_CERTIFICATE', key: 'CLIENT_KEY' } as const
type TlsPart = keyof typeof TLS
/** How PEM files of certificates and of private keys are told apart: a file of the other kind would go unnoticed until spans are lost. */
const LABELS = {
  certificate: /-----BEGIN ([A-Z0-9]+ )?CERTIFICATE-----/,
  'private key': /-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY-----/,
} as const

/** The files that are named for the connection to the collector: those for traces before those for everything. */
const tlsFiles = (values: Partial<Values>) =>
  (Object.entries(TLS) as [TlsPart, string][]).flatMap(([part, what]) => {
    const names = [`OTEL_EXPORTER_OTLP_TRACES_${what}`, `OTEL_EXPORTER_OTLP_${what}`] as VariableName[]
    const name = names.find((each) => values[each] !== undefined)
    return name === undefined ? [] : [{ part, name, path: values[name] as string }]
  })

function tlsProblems(values: Partial<Values>, read_file: ReadFile): Problem[] {
  const files = tlsFiles(values)
  const problems = files.flatMap(({ part, name, path }) => {
    const what = part === 'key' ? 'private key' : 'certificate'
    const fault = pemFault(path, what, read_file)
    const was = `${JSON.stringify(path)} (${fault})`
    return fault === undefined ? [] : [{ name, was, may_be: `the path of a PEM file with a ${what} in it` }]
  })
  const [cert, key] = ['cert', 'key'].map((part) => files.find((file) => file.part === part))
  const alone = cert && !key ? cert : key && !cert ? key : undefined
  if (alone)
    problems.push({
      name: alone.name,
      was: `set, and no client ${alone === cert ? 'key' : 'certificate'} with it`,
      may_be: 'set together with OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY',
    })
  return problems
}

function pemFault(path: string, what: keyof typeof LABELS, read_file: ReadFile): string | undefined {
  try {
    return LABELS[what].test(read_file(path)) ? undefined : `which has no ${what} in it`
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unreadable'
  }
}

/** The default is not meant to go with a smaller queue: only what somebody has said is wrong. */
function tooLargeBatch({
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: size,
  OTEL_BSP_MAX_QUEUE_SIZE: queue,
}: Partial<Values>): Problem[] {
  if (size === undefined || queue === undefined || size <= queue) return []
  if (String(size) === TRACING_VARIABLES.OTEL_BSP_MAX_EXPORT_BATCH_SIZE.default) return []
  return [
    {
      name: 'OTEL_BSP_MAX_EXPORT_BATCH_SIZE',
      was: `${size}, more than OTEL_BSP_MAX_QUEUE_SIZE (${queue})`,
      may_be: `${queue} or less`,
    },
  ]
}

function uselessRatio({ OTEL_TRACES_SAMPLER: sampler }: Partial<Values>, env: Environment): string[] {
  if (!env.OTEL_TRACES_SAMPLER_ARG || sampler === undefined || sampler.endsWith('ratio')) return []
  return [
    `OTEL_TRACES_SAMPLER_ARG is set, but the sampler ${sampler} has no use for it. Did you mean OTEL_TRACES_SAMPLER=parentbased_traceidratio?`,
  ]
}

/** What concerns metrics, logs or the libraries of single languages. */
const OF_OTHERS =
  /METRIC|_LOGS?_|_BLRP_|PROMETHEUS|^OTEL_(NODE|JS|JAVA|PYTHON|DOTNET|GO|PHP|RUBY|EBPF|INSTRUMENTATION)_/

/** What somebody may believe to be in force. */
const unread = (env: Environment): string[] => {
  const typos = new Set(findTypos(env).map(({ name }) => name))
  return Object.keys(env)
    .filter((name) => name.startsWith('OTEL_') && env[name] && !OF_OTHERS.test(name))
    .filter((name) => !(name.replace(/_FILE$/, '') in TRACING_VARIABLES) && !typos.has(name))
    .map((name) => `${name} is set, but roomful does not read it.`)
}
