import { counter, gauge, histogram, type Metrics } from '../../shared/metrics.ts'

/** Metrics of a node's copies of lists of rooms. */
export const DIRECTORY_METRICS = {
  listedRows: gauge('service_directory_rows', 'Rows in the copies of lists of rooms that this node keeps.'),
  listQueryDuration: histogram(
    'service_directory_query_duration_seconds',
    'Time in which a query found its rows in the copy of a list. The event loop does nothing else then.',
  ),
  listWatchers: gauge('service_directory_watchers', 'Queries whose results this node watches for clients.'),
  placements: counter(
    'service_placements_total',
    'Players of `joinOrCreate` for whom this node, as the placer of their list, has chosen a room: a listed one (listed), or one that has no row yet (new).',
    { room: ['listed', 'new'] },
  ),
  failedListPolls: counter(
    'service_directory_failed_polls_total',
    'Reads of changes of a list of rooms that failed. The node continues to answer from its copy.',
  ),
}

export type DirectoryMetrics = Metrics<typeof DIRECTORY_METRICS>
