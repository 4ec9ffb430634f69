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
  /** How long one request may take, retries included. */
  readonly timeout_ms: number
  readonly compression: 'none' | 'gzip'
  /** PEM texts. */
  readonly tls: { readonly ca?: string; readonly cert?: string; readonly key?: string }
  readonly service_name: string
  /** Of the process, by OpenTelemetry's names; they come before what it would say of itself, but for its name. */
  readonly attributes: Readonly<Record<string, string>>
  readonly sampler: SamplerName
  /** 0–1, for the samplers with a ratio. */
  readonly ratio: number
  readonly batches: BatchConfig
}

/** How spans are gathered before they are sent. */
export interface BatchConfig {
  /** How long spans wait for others. */
  readonly delay_ms: number
  /** After how long the next batch is sent although the one before is not done. */
  readonly patience_ms: number
  /** How many spans wait at most; more are lost. */
  readonly queue: number
  /** How many are sent at once; no more than wait. */
  readonly size: number
}
