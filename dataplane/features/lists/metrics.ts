import { counter, gauge, histogram, type Metrics, OPEN } from '../../../shared/metrics.ts'

/** Metrics of lists of rooms, codes, and the search for free seats. */
export const LIST_METRICS = {
  roomRows: counter(
    'service_room_rows_total',
    'Rows of rooms for lists. not_written: the store did not answer; failed: `listing.of` failed.',
    { room_type: OPEN, outcome: ['written', 'not_written', 'failed'] },
  ),
  listedRows: gauge('service_directory_rows', 'Rows in the copies of lists of rooms at this node.'),
  listQueryDuration: histogram(
    'service_directory_query_duration_seconds',
    'Time of a query in the copy of a list, or of 1,000 rows of it.',
  ),
  stoppedQueries: counter(
    'service_directory_queries_stopped_total',
    'Queries that stopped after maxRowsPerQuery rows.',
  ),
  listWatchers: gauge('service_directory_watchers', 'Watches of lists by clients of this node.'),
  watchedQueries: gauge(
    'service_directory_watched_queries',
    'Different queries of all watches. Equal ones are evaluated once.',
  ),
  placements: counter(
    'service_placements_total',
    'Rooms chosen for `joinOrCreate`: listed, or without a row (new). failed: no placer answered within 8 s.',
    { result: ['listed', 'new', 'failed'] },
  ),
  failedListPolls: counter(
    'service_directory_failed_polls_total',
    'Failed reads of changes of a list. The node answers from its copy.',
  ),
  seatPromises: counter(
    'service_seat_promises_total',
    'Seats promised to players of `joinOrCreate`: joined within 3 s (kept), not joined (broken), or not promised (withheld).',
    { result: ['kept', 'broken', 'withheld'] },
  ),
  wrongCodes: counter(
    'service_wrong_codes_total',
    'Room codes without a room (wrong), and codes refused after too many of these (refused).',
    { result: ['wrong', 'refused'] },
  ),
  listsDelayed: counter(
    'service_lists_delayed_total',
    'Lists that waited because their player, or their token without sub, has no bytes for lists.',
    { by: ['player', 'token'] },
  ),
}

export type ListMetrics = Metrics<typeof LIST_METRICS>
