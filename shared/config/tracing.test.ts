import { describe, expect, it } from 'vitest'
import {
  describeProblems,
  type Environment,
  type Parsed,
  parseControlConfig,
  parseDataplaneConfig,
} from '../config.ts'

const REDIS = { REDIS_URL: 'redis://127.0.0.1:6379' }

function config<C>(parsed: Parsed<C>): C {
  if (!parsed.ok) throw new Error(describeProblems(parsed))
  return parsed.config
}

const problems = (parsed: Parsed<unknown>) => (parsed.ok ? [] : parsed.problems)
const named = (parsed: Parsed<unknown>) => problems(parsed).map((problem) => problem.name)

describe('traces', () => {
  const ON = { ...REDIS, OTEL_TRACES_EXPORTER: 'otlp' }
  const tracing = (env: Environment) => config(parseControlConfig({ ...ON, ...env })).tracing

  it('go to a collector on this machine when they are on and nothing else is said', () => {
    expect(tracing({})).toEqual({
      url: 'http://localhost:4318/v1/traces',
      headers: {},
      timeout_ms: 10_000,
      compression: 'none',
      tls: {},
      service_name: 'roomful-control',
      attributes: {},
      sampler: 'parentbased_always_on',
      ratio: 1,
      batches: { delay_ms: 5000, patience_ms: 30_000, queue: 2048, size: 512 },
    })
    expect(config(parseDataplaneConfig(ON)).tracing?.service_name).toBe('roomful-dataplane')
  })

  it('go where the variables of OpenTelemetry say', () => {
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: 'https://collector.example.com/otlp/',
      OTEL_EXPORTER_OTLP_HEADERS: 'api-key=a%2Cb=, x-tenant=games',
      OTEL_SERVICE_NAME: 'lobby',
      OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0.25',
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
      OTEL_EXPORTER_OTLP_TIMEOUT: '2500',
      OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=staging, team=a%2Cb%3Dc',
      OTEL_PROPAGATORS: 'tracecontext,baggage',
      OTEL_SDK_DISABLED: 'False',
      OTEL_BSP_SCHEDULE_DELAY: '1000',
      OTEL_BSP_EXPORT_TIMEOUT: '20000',
      OTEL_BSP_MAX_QUEUE_SIZE: '4096',
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '1024',
    }
    expect(tracing(env)).toEqual({
      url: 'https://collector.example.com/otlp/v1/traces',
      headers: { 'api-key': 'a,b=', 'x-tenant': 'games' },
      service_name: 'lobby',
      sampler: 'parentbased_traceidratio',
      ratio: 0.25,
      timeout_ms: 2500,
      compression: 'gzip',
      tls: {},
      attributes: { 'deployment.environment.name': 'staging', team: 'a,b=c' },
      batches: { delay_ms: 1000, patience_ms: 20_000, queue: 4096, size: 1024 },
    })
    const own = {
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://traces.example.com/in',
      OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'http/json',
      OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'x-tenant=traces',
      OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: '900',
      OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: 'none',
    }
    expect(tracing({ ...env, ...own })).toMatchObject({
      url: 'http://traces.example.com/in',
      headers: { 'api-key': 'a,b=', 'x-tenant': 'traces' },
      timeout_ms: 900,
      compression: 'none',
    })
  })

  it('are none where OpenTelemetry is disabled, whatever else is said', () => {
    const env = {
      OTEL_SDK_DISABLED: 'TRUE',
      OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
      OTEL_TRACES_SAMPLER_ARG: '0.1',
    }
    const parsed = parseControlConfig({ ...ON, ...env })
    expect(config(parsed).tracing).toBeUndefined()
    expect(parsed.warnings.filter((warning) => warning.includes('OTEL'))).toEqual([])
    expect(
      config(parseControlConfig({ ...ON, ...env, OTEL_TRACES_EXPORTER: 'zipkin' })).tracing,
    ).toBeUndefined()
  })

  it('are of the service that OTEL_SERVICE_NAME names, or else OTEL_RESOURCE_ATTRIBUTES', () => {
    const attributes = { OTEL_RESOURCE_ATTRIBUTES: 'service.name=games' }
    expect(tracing(attributes)?.service_name).toBe('games')
    expect(tracing({ ...attributes, OTEL_SERVICE_NAME: 'lobby' })?.service_name).toBe('lobby')
  })

  it('go over TLS with the certificates of files', () => {
    const files: Record<string, string> = {
      '/ca': '-----BEGIN CERTIFICATE-----\nca',
      '/cert': '-----BEGIN CERTIFICATE-----\ncert',
      '/own-cert': '-----BEGIN CERTIFICATE-----\nown',
      '/key': '-----BEGIN EC PRIVATE KEY-----\nkey',
    }
    const read = (path: string): string => files[path]!
    const env = {
      ...ON,
      OTEL_EXPORTER_OTLP_CERTIFICATE: '/ca',
      OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: '/cert',
      OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE: '/own-cert',
      OTEL_EXPORTER_OTLP_CLIENT_KEY: '/key',
    }
    const tls = { ca: files['/ca'], cert: files['/own-cert'], key: files['/key'] }
    expect(config(parseControlConfig(env, read)).tracing?.tls).toEqual(tls)
    expect(problems(parseControlConfig(env, () => 'nothing'))).toMatchObject([
      { name: 'OTEL_EXPORTER_OTLP_CERTIFICATE', was: '"/ca" (which has no certificate in it)' },
      { name: 'OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE' },
      { name: 'OTEL_EXPORTER_OTLP_CLIENT_KEY' },
    ])
    const swapped = { OTEL_EXPORTER_OTLP_CERTIFICATE: '/key', OTEL_EXPORTER_OTLP_CLIENT_KEY: '/cert' }
    expect(problems(parseControlConfig({ ...env, ...swapped }, read))).toMatchObject([
      { name: 'OTEL_EXPORTER_OTLP_CERTIFICATE', was: '"/key" (which has no certificate in it)' },
      {
        name: 'OTEL_EXPORTER_OTLP_CLIENT_KEY',
        was: '"/cert" (which has no private key in it)',
        may_be: 'the path of a PEM file with a private key in it',
      },
    ])
    const { OTEL_EXPORTER_OTLP_CLIENT_KEY: _, ...alone } = env
    expect(problems(parseControlConfig(alone, read))).toMatchObject([
      { name: 'OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE', was: 'set, and no client key with it' },
    ])
    expect(
      named(parseControlConfig({ ...ON, OTEL_EXPORTER_OTLP_CERTIFICATE: '/nowhere/to/be/found' })),
    ).toEqual(['OTEL_EXPORTER_OTLP_CERTIFICATE'])
  })

  it.each([
    ['OTEL_EXPORTER_OTLP_INSECURE', 'roomful does not read it'],
    ['OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT', 'roomful does not read it'],
    ['OTEL_TRACES_SAMPLER_ARG', 'has no use for it'],
    ['OTEL_TRACES_SAMPLR', 'Did you mean OTEL_TRACES_SAMPLER?'],
  ])('come with a warning when %s is set, which has no effect', (name, text) => {
    const about = ({ warnings }: { readonly warnings: readonly string[] }) =>
      warnings.filter((warning) => warning.startsWith('OTEL'))
    expect(about(parseControlConfig({ ...ON, [name]: '1' }))).toEqual([expect.stringContaining(text)])
    const others = {
      OTEL_METRICS_EXPORTER: 'otlp',
      OTEL_LOG_LEVEL: 'info',
      OTEL_NODE_RESOURCE_DETECTORS: 'env',
    }
    expect(about(parseControlConfig({ ...ON, ...others }))).toEqual([])
  })

  it.each([
    ['OTEL_TRACES_EXPORTER', 'jaeger'],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4317'],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'secret'],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'key=%zz'],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'key=one%0Atwo'],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'my:key=secret'],
    ['OTEL_TRACES_SAMPLER', 'jaeger_remote'],
    ['OTEL_TRACES_SAMPLER_ARG', '1.5'],
    ['OTEL_TRACES_SAMPLER_ARG', '.'],
    ['OTEL_SDK_DISABLED', 'yes'],
    ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc'],
    ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'http/protobuf'],
    ['OTEL_EXPORTER_OTLP_TRACES_HEADERS', 'secret'],
    ['OTEL_EXPORTER_OTLP_TIMEOUT', '10s'],
    ['OTEL_EXPORTER_OTLP_TIMEOUT', '0'],
    ['OTEL_EXPORTER_OTLP_COMPRESSION', 'zstd'],
    ['OTEL_RESOURCE_ATTRIBUTES', 'staging'],
    ['OTEL_RESOURCE_ATTRIBUTES', 'team=%zz'],
    ['OTEL_RESOURCE_ATTRIBUTES', '=b'],
    ['OTEL_PROPAGATORS', 'b3'],
    ['OTEL_PROPAGATORS', 'baggage'],
    ['OTEL_BSP_MAX_QUEUE_SIZE', '0'],
    ['OTEL_BSP_MAX_EXPORT_BATCH_SIZE', '4000'],
  ])('are refused when %s is %s', (name, value) => {
    expect(named(parseControlConfig({ ...ON, [name]: value }))).toEqual([name])
  })

  it('never show the headers', () => {
    const parsed = parseControlConfig({ ...ON, OTEL_EXPORTER_OTLP_HEADERS: 'my secret' })
    expect(JSON.stringify(problems(parsed))).not.toContain('my secret')
  })

  it('leave variables that are meant for other programs alone while they are off', () => {
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4317', OTEL_TRACES_SAMPLER: 'jaeger_remote' }
    expect(config(parseControlConfig({ ...REDIS, ...env })).tracing).toBeUndefined()
  })
})
