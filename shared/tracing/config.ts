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
