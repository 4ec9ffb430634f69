import { SAMPLERS } from '../tracing/config.ts'
import {
  attributes,
  fraction,
  headers,
  integer,
  oneOf,
  propagators,
  text,
  trueOrFalse,
  url,
} from './kinds.ts'
import { BOTH, optional, withDefault } from './variable.ts'

const HEADERS = headers('name=value pairs separated by commas, names as in HTTP, values percent-encoded')
const PROTOCOL = oneOf(['http/json'])
const COMPRESSION = oneOf(['none', 'gzip'])
const MILLISECONDS = integer(1, 600_000, 'milliseconds')
const PEM = text('the path of a PEM file')

/**
 * What OpenTelemetry's specification names, as far as it concerns traces. The names and meanings are its own; what roomful cannot do is
 * refused rather than passed over. All but the first two are read only while traces are on.
 */
export const TRACING_VARIABLES = {
  OTEL_TRACES_EXPORTER: withDefault({
    meaning: 'otlp sends traces to a collector, as OTLP over HTTP in JSON.',
    kind: oneOf(['none', 'otlp']),
    default: 'none',
    used_by: BOTH,
  }),
  OTEL_SDK_DISABLED: withDefault({
    meaning: 'true: no traces, whatever the other variables say.',
    kind: trueOrFalse,
    default: 'false',
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_ENDPOINT: withDefault({
    meaning: 'Where the collector is; spans go to /v1/traces below it.',
    kind: url(['http', 'https'], 'http://collector:4318'),
    default: 'http://localhost:4318',
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: optional({
    meaning: 'Where spans go, when that is somewhere else: the whole URL.',
    kind: url(['http', 'https'], 'https://traces.example.com/v1/traces'),
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_PROTOCOL: withDefault({
    meaning: 'How the collector is spoken to; there is one way.',
    kind: PROTOCOL,
    default: 'http/json',
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: optional({
    meaning: 'The same for traces alone.',
    kind: PROTOCOL,
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_HEADERS: optional({
    meaning: 'Headers for the collector, such as its credential.',
    kind: HEADERS,
    used_by: BOTH,
    secret: true,
  }),
  OTEL_EXPORTER_OTLP_TRACES_HEADERS: optional({
    meaning: 'More of them for traces alone; of the same name, this one counts.',
    kind: HEADERS,
    used_by: BOTH,
    secret: true,
  }),
  OTEL_EXPORTER_OTLP_TIMEOUT: withDefault({
    meaning: 'How long the collector may take for one batch of spans, retries included.',
    kind: MILLISECONDS,
    default: '10000',
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: optional({
    meaning: 'The same for traces alone.',
    kind: MILLISECONDS,
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_COMPRESSION: withDefault({
    meaning: 'Whether what is sent is compressed.',
    kind: COMPRESSION,
    default: 'none',
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: optional({
    meaning: 'The same for traces alone.',
    kind: COMPRESSION,
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_CERTIFICATE: optional({
    meaning: 'Certificates of the authorities that the collector’s is checked against.',
    kind: PEM,
    default_note: 'those of Node',
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: optional({
    meaning: 'The same for traces alone.',
    kind: PEM,
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: optional({
    meaning: 'Certificate that is shown to the collector.',
    kind: PEM,
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE: optional({
    meaning: 'The same for traces alone.',
    kind: PEM,
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_CLIENT_KEY: optional({
    meaning: 'Private key of the certificate that is shown to the collector.',
    kind: PEM,
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY: optional({
    meaning: 'The same for traces alone.',
    kind: PEM,
    used_by: BOTH,
  }),
  OTEL_SERVICE_NAME: optional({
    meaning: 'Name of the service in its traces.',
    kind: text('a text'),
    default_note: 'service.name of the resource attributes, or roomful-control, roomful-dataplane',
    used_by: BOTH,
  }),
  OTEL_RESOURCE_ATTRIBUTES: optional({
    meaning: 'What every span says of the process besides, such as deployment.environment.name=staging.',
    kind: attributes('key=value pairs separated by commas, percent-encoded'),
    used_by: BOTH,
  }),
  OTEL_TRACES_SAMPLER: withDefault({
    meaning: 'Which traces are recorded; parentbased_…: only where the caller has not decided already.',
    kind: oneOf(SAMPLERS),
    default: 'parentbased_always_on',
    used_by: BOTH,
  }),
  OTEL_TRACES_SAMPLER_ARG: withDefault({
    meaning: 'The share of traces that the samplers with a ratio record.',
    kind: fraction,
    default: '1',
    used_by: BOTH,
  }),
  OTEL_PROPAGATORS: withDefault({
    meaning: 'How callers say which trace they are in. Baggage may be named, and is not passed on.',
    kind: propagators,
    default: 'tracecontext',
    used_by: BOTH,
  }),
  OTEL_BSP_SCHEDULE_DELAY: withDefault({
    meaning: 'How long spans wait for others to be sent with.',
    kind: MILLISECONDS,
    default: '5000',
    used_by: BOTH,
  }),
  OTEL_BSP_EXPORT_TIMEOUT: withDefault({
    meaning: 'After how long the next batch is sent although the one before is not done.',
    kind: MILLISECONDS,
    default: '30000',
    used_by: BOTH,
  }),
  OTEL_BSP_MAX_QUEUE_SIZE: withDefault({
    meaning: 'How many spans wait for the collector at most; more are lost.',
    kind: integer(1, 1_000_000, 'spans'),
    default: '2048',
    used_by: BOTH,
  }),
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: withDefault({
    meaning: 'How many spans are sent at once.',
    kind: integer(1, 1_000_000, 'spans'),
    default: '512',
    used_by: BOTH,
  }),
} as const
