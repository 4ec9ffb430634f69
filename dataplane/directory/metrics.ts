import { counter, gauge, type Metrics } from '../../shared/metrics.ts'

/** Metrics of a node's copies of lists of rooms. */
export const DIRECTORY_METRICS = {
  listedRows: gauge('service_directory_rows', 'Rows in the copies of lists of rooms that this node keeps.'),
  listQueries: counter(
    'service_directory_queries_total',
    'Queries of lists of rooms that this node has answered.',
  ),
  listWatchers: gauge('service_directory_watchers', 'Queries whose results this node watches for clients.'),
  failedListPolls: counter(
    'service_directory_failed_polls_total',
    'Reads of changes of a list of rooms that failed. The node continues to answer from its copy.',
  ),
}

export type DirectoryMetrics = Metrics<typeof DIRECTORY_METRICS>
