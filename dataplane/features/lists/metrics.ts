import { counter, gauge, histogram, type Metrics, OPEN } from '../../../shared/metrics.ts'

/** Metrics of lists of rooms, codes, and the search for free seats. */
export const LIST_METRICS = {
  roomRows: counter(
    'service_room_rows_total',
    'Rows of rooms for lists: the store has them (written), the store does not answer (not_written), or `listing.of` failed and the previous row stays (failed).',
    { room_type: OPEN, outcome: ['written', 'not_written', 'failed'] },
  ),
  listedRows: gauge('service_directory_rows', 'Rows in the copies of lists of rooms that this node keeps.'),
  listQueryDuration: histogram(
    'service_directory_query_duration_seconds',
    'Time of a query in the copy of a list, or of a slice of 1,000 rows of it. The event loop does nothing else during it.',
  ),
  stoppedQueries: counter(
    'service_directory_queries_stopped_total',
    'Queries that stopped because they had looked at maxRowsPerQuery rows.',
  ),
  listWatchers: gauge('service_directory_watchers', 'Watches of lists by clients of this node.'),
  watchedQueries: gauge(
    'service_directory_watched_queries',
    'Different queries of all watches. Equal ones are evaluated once.',
  ),
  placements: counter(
    'service_placements_total',
    'Requests of `joinOrCreate` for a room. At the placer of the list: it has chosen a listed room (listed), or a room without a row (new). At the edge of the player: no placer has answered within 8 s (failed).',
    { result: ['listed', 'new', 'failed'] },
  ),
  failedListPolls: counter(
    'service_directory_failed_polls_total',
    'Reads of changes of a list of rooms that failed. The node continues to answer from its copy.',
  ),
  seatPromises: counter(
    'service_seat_promises_total',
    'Seats that `find` has promised to players, by result: a join came within 3 s (kept) or not (broken), or no seat was promised because the player has broken several promises (withheld).',
    { result: ['kept', 'broken', 'withheld'] },
  ),
  wrongCodes: counter(
    'service_wrong_codes_total',
    'Room codes without a room (wrong), and codes that were refused because of too many wrong ones (refused).',
    { result: ['wrong', 'refused'] },
  ),
  listsDelayed: counter(
    'service_lists_delayed_total',
    'Lists of rooms that had to wait because their player (player), or their token without sub at its address (token), has no bytes for lists.',
    { by: ['player', 'token'] },
  ),
}

export type ListMetrics = Metrics<typeof LIST_METRICS>
