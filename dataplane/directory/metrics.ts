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
    'Requests of `joinOrCreate` for a room: this node, as the placer of the list, has chosen a listed room (listed) or one that has no row yet (new); or no placer has answered this node, as the edge of the player, within 8 s (failed).',
    { result: ['listed', 'new', 'failed'] },
  ),
  failedListPolls: counter(
    'service_directory_failed_polls_total',
    'Reads of changes of a list of rooms that failed. The node continues to answer from its copy.',
  ),
}

export type DirectoryMetrics = Metrics<typeof DIRECTORY_METRICS>
