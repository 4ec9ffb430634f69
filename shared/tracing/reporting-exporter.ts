import { type ExportResult, ExportResultCode } from '@opentelemetry/core'
import type { ReadableSpan, SpanExporter } from '@opentelemetry/sdk-trace-base'
import type { Logger } from '../log.ts'

/** Sends spans by another exporter; says once when nobody takes them, and once when somebody does again. */
export class ReportingExporter implements SpanExporter {
  readonly #exporter: SpanExporter
  readonly #log: Logger
  #failing = false
  #lost = 0

  constructor(exporter: SpanExporter, log: Logger) {
    this.#exporter = exporter
    this.#log = log
  }

  export(spans: ReadableSpan[], done: (result: ExportResult) => void): void {
    this.#exporter.export(spans, (result) => {
      this.#report(spans.length, result)
      done(result)
    })
  }

  shutdown(): Promise<void> {
    return this.#exporter.shutdown()
  }

  forceFlush(): Promise<void> {
    return this.#exporter.forceFlush?.() ?? Promise.resolve()
  }

  #report(spans: number, { code, error }: ExportResult): void {
    const failed = code !== ExportResultCode.SUCCESS
    if (failed) {
      this.#lost += spans
      // The message alone: the rest of the error may have the request in it, with its headers.
      if (!this.#failing)
        this.#log.warn(
          { spans, why: error?.message },
          'traces cannot be exported, and are lost until they can',
        )
    } else if (this.#failing) {
      this.#log.info({ lost: this.#lost }, 'traces are exported again')
      this.#lost = 0
    }
    this.#failing = failed
  }
}
