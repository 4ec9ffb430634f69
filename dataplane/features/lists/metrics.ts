import { counter, gauge, histogram, type Metrics, OPEN } from '../../../shared/metrics.ts'

/** Metrics of lists of rooms, codes, and the search for free seats. */
export const LIST_METRICS = {
  roomRows: counter(
    'service_room_rows_total',
    'Rows of rooms for lists: stored (written), without an answer of the store (not_written), or `listing.of` failed and the previous row stays (failed).',
    { room_type: OPEN, outcome: ['written', 'not_written', 'failed'] },
  ),
  listedRows: gauge('service_directory_rows', 'Rows in the copies of lists of rooms at this node.'),
  listQueryDuration: histogram(
    'service_directory_query_duration_seconds',
    'Time of a query in the copy of a list, or of a slice of 1,000 rows, in which the event loop does nothing else.',
  ),
  stoppedQueries: counter(
    'service_directory_queries_stopped_total',
    'Queries that stopped after maxRowsPerQuery rows.',
  ),
  listWatchers: gauge('service_directory_watchers', 'Watches of lists by clients of this node.'),
  watchedQueries: gauge(
    'service_directory_watched_queries',
    'Different queries of all watches: equal ones are evaluated once.',
  ),
  placements: counter(
    'service_placements_total',
    'Requests of `joinOrCreate` for a room. At the placer of the list: it chose a listed room (listed), or one without a row (new). At the edge: no placer answered within 8 s (failed).',
    { result: ['listed', 'new', 'failed'] },
  ),
  failedListPolls: counter(
    'service_directory_failed_polls_total',
    'Reads of changes of a list of rooms that failed. The node continues to answer from its copy.',
  ),
  seatPromises: counter(
    'service_seat_promises_total',
    'Seats that `find` promised to players: a join came within 3 s (kept) or not (broken), or no promise was made as the player had broken several (withheld).',
    { result: ['kept', 'broken', 'withheld'] },
  ),
  wrongCodes: counter(
    'service_wrong_codes_total',
    'Room codes without a room (wrong), and codes refused after too many wrong ones (refused).',
    { result: ['wrong', 'refused'] },
  ),
  listsDelayed: counter(
    'service_lists_delayed_total',
    'Lists of rooms that waited because their player (player), or their token without sub at its address (token), has no bytes for lists.',
    { by: ['player', 'token'] },
  ),
}

export type ListMetrics = Metrics<typeof LIST_METRICS>
