import { ExportResultCode } from '@opentelemetry/core'
import {
  BatchSpanProcessor,
  type ReadableSpan,
  type SpanExporter,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import type { BatchConfig } from './config.ts'
import { ExportLog } from './export-log.ts'

/**
 * Spans that have ended, until they are sent in batches. Their number is limited, so that a collector that is away or slow costs neither
 * time nor memory; those that are lost are counted, and told of.
 */
export class SpanQueue implements SpanProcessor {
  readonly #batches: BatchSpanProcessor
  readonly #most: number
  readonly #log: ExportLog
  /** Handed to the batches, which drop what is too much without a word, and not yet to the exporter. */
  #waiting = 0

  constructor(config: BatchConfig, exporter: SpanExporter, { clock, log }: { clock: Clock; log: Logger }) {
    this.#most = config.queue
    this.#log = new ExportLog(clock, log)
    this.#batches = new BatchSpanProcessor(this.#reporting(exporter), {
      scheduledDelayMillis: config.delay_ms,
      exportTimeoutMillis: config.patience_ms,
      maxQueueSize: config.queue,
      maxExportBatchSize: config.size,
    })
  }

  onStart(): void {}

  onEnd(span: ReadableSpan): void {
    if (this.#waiting >= this.#most) {
      this.#log.lost(1, `${this.#most} spans are waiting already`)
      return
    }
    this.#waiting += 1
    this.#batches.onEnd(span)
  }

  forceFlush(): Promise<void> {
    return this.#batches.forceFlush()
  }

  shutdown(): Promise<void> {
    return this.#batches.shutdown()
  }

  #reporting(exporter: SpanExporter): SpanExporter {
    return {
      export: (spans, done) => {
        this.#waiting -= spans.length
        exporter.export(spans, (result) => {
          // The message alone: the rest of the error may have the request in it, with its headers.
          if (result.code === ExportResultCode.SUCCESS) this.#log.taken()
          else this.#log.lost(spans.length, result.error?.message)
          done(result)
        })
      },
      shutdown: () => exporter.shutdown(),
    }
  }
}
