import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import type { Random } from '../random.ts'
import type { TracingConfig } from './config.ts'
import { noTracer, type Tracer } from './tracer.ts'

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
