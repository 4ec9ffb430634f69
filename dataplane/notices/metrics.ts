import { counter, gauge, histogram, type Metrics } from '../../shared/metrics.ts'

/** Results of an attempt to deliver a notice. */
const RESULTS = ['delivered', 'failed', 'dead'] as const

/** Upper bounds in seconds of the ages of delivered notices. */
const AGES = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300, 3600, 86_400]

/** Metrics of the delivery of notices. */
export const NOTICE_METRICS = {
  noticeAttempts: counter(
    'service_notice_attempts_total',
    'Attempts to deliver notices to the backend: delivered, failed (tried again), or dead (moved to the dead letters, since the backend has rejected the notice or has not accepted it for 24 h).',
    { result: RESULTS },
  ),
  noticeAge: histogram(
    'service_notice_delivery_seconds',
    'Time from the turn of a notice until the backend has accepted it.',
    {},
    AGES,
  ),
  noticeOldest: gauge(
    'service_notices_oldest_seconds',
    'Age of the oldest notice that this node sends, or sends again after a failure; 0: there is none.',
  ),
  deadNoticesDropped: counter(
    'service_dead_notices_dropped_total',
    'Dead letters that were deleted since their project had 10,000.',
  ),
}

export type NoticeMetrics = Metrics<typeof NOTICE_METRICS>
