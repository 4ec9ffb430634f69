import type { Config } from '../config.ts'
import { noTracer, type Tracing, type TracingConfig, type TracingParts } from './tracer.ts'

/** What the variables of a process say of traces; undefined: they are off. */
export function tracingConfig(
  config: Config<'control'> | Config<'dataplane'> | Config<'dev'>,
  serviceName: string,
): TracingConfig | undefined {
  if (config.otelTracesExporter === 'none' || config.otelSdkDisabled) return undefined
  return { serviceName, headers: config.otelExporterOtlpHeaders ?? '' }
}

/** Loads the module that exports spans; a parameter, since OpenTelemetry's packages need not be there. */
const loadOtlp = () => import('./otlp.ts')

/**
 * Opens the traces of a process. The libraries of OpenTelemetry are loaded here, and only when traces are on: rejects with what to install
 * where they are missing.
 */
export async function openTracing({ config, ...parts }: TracingParts, load = loadOtlp): Promise<Tracing> {
  if (!config) return { tracer: noTracer, close: async () => {} }
  const { openOtlp } = await load().catch((error: unknown) => {
    const [, missing] = /'(@opentelemetry\/[^']+)'/.exec(error instanceof Error ? error.message : '') ?? []
    if (missing === undefined) throw error
    throw new PackageMissing(
      `OTEL_TRACES_EXPORTER is otlp, but the package ${missing} is not installed. Traces need: npm install ${PACKAGES.join(' ')}`,
      { cause: error },
    )
  })
  return openOtlp({ config, ...parts })
}

/** A package that a variable asks for is not installed. */
class PackageMissing extends Error {
  override readonly name = 'PackageMissing'
}

/** Optional peers of the package, which `otlp.ts` imports. */
const PACKAGES = ['api', 'core', 'exporter-trace-otlp-http', 'resources', 'sdk-trace-base'].map(
  (name) => `@opentelemetry/${name}`,
)
