import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import type { Random } from '../random.ts'
import { noTracer, type Tracer } from './tracer.ts'

/** Which share of traces is recorded; the names are OpenTelemetry's. `parentbased_…`: only where the caller has not decided already. */
export const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const
export type SamplerName = (typeof SAMPLERS)[number]

/** Where spans go, and which. */
export interface TracingConfig {
  /** Takes spans as OTLP over HTTP, such as `http://localhost:4318/v1/traces`. */
  readonly url: string
  /** Sent with every request; may be secrets. */
  readonly headers: Readonly<Record<string, string>>
  readonly service_name: string
  readonly sampler: SamplerName
  /** 0–1, for the samplers with a ratio. */
  readonly ratio: number
}

/** What exporting works with. */
export interface TracingParts {
  /** Undefined: traces are off. */
  readonly config: TracingConfig | undefined
  /** Tells this process from the others of the service. */
  readonly instance_id: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
}

/** The traces of a process. */
export interface Tracing {
  readonly tracer: Tracer
  /** Sends what has not been sent; resolves after two seconds at the latest, whether or not somebody took it. */
  close(): Promise<void>
}

/** Opens the traces of a process. The libraries of OpenTelemetry are loaded here, and only when traces are on. */
export async function openTracing({ config, ...parts }: TracingParts): Promise<Tracing> {
  if (!config) return { tracer: noTracer, close: async () => {} }
  const { OtlpTracing } = await import('./otlp.ts')
  return new OtlpTracing({ config, ...parts })
}
