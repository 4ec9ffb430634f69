import type { Config } from '../config.ts'
import { noTracer, type Tracing, type TracingConfig, type TracingParts } from './tracer.ts'

/** Returns the trace configuration in the variables of a process. Undefined: traces are off. */
export function tracingConfig(
  config: Config<'control'> | Config<'dataplane'> | Config<'dev'>,
  serviceName: string,
): TracingConfig | undefined {
  if (config.otelTracesExporter === 'none') return undefined
  return { serviceName, headers: config.otelExporterOtlpHeaders ?? '' }
}

/** Loads the module that exports spans. It is a parameter, because OpenTelemetry's packages are optional. */
const loadOtlp = () => import('./otlp.ts')

/**
 * Opens the traces of a process. Loads OpenTelemetry's libraries only if traces are on. Rejects with an instruction to install them if they
 * are missing.
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

/** Error of a missing package that a variable requires. */
class PackageMissing extends Error {
  override readonly name = 'PackageMissing'
}

/** Optional peer dependencies, which `otlp.ts` imports. */
const PACKAGES = ['api', 'core', 'exporter-trace-otlp-http', 'resources', 'sdk-trace-base'].map(
  (name) => `@opentelemetry/${name}`,
)
