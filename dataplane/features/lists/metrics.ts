import { counter, gauge, histogram, type Metrics, OPEN } from '../../../shared/metrics.ts'

/** Metrics of lists of rooms, codes, and the search for free seats. */
export const LIST_METRICS = {
  roomRows: counter(
    'service_room_rows_total',
    'Rows of lists. not_written: the store did not answer; failed: `listing.of` threw.',
    { room_type: OPEN, outcome: ['written', 'not_written', 'failed'] },
  ),
  listedRows: gauge('service_directory_rows', 'Rows in this node’s copies of lists.'),
  listQueryDuration: histogram(
    'service_directory_query_duration_seconds',
    'Time of a query in the copy of a list. A long query counts once for each 1,000 rows.',
  ),
  stoppedQueries: counter(
    'service_directory_queries_stopped_total',
    'Queries that stopped after maxRowsPerQuery rows.',
  ),
  listWatchers: gauge('service_directory_watchers', 'Watches of lists by clients of this node.'),
  watchedQueries: gauge(
    'service_directory_watched_queries',
    'Different queries of all watches. Equal queries run once.',
  ),
  placements: counter(
    'service_placements_total',
    'Rooms chosen for `joinOrCreate`. new: not listed yet. failed: no placer answered within 8 s.',
    { result: ['listed', 'new', 'failed'] },
  ),
  failedListPolls: counter(
    'service_directory_failed_polls_total',
    'Failed reads of changes of a list. The node answers from its copy.',
  ),
  seatPromises: counter(
    'service_seat_promises_total',
    'Promised seats of `joinOrCreate`. kept: joined within 3 s; broken: not joined; withheld: none, after too many broken ones.',
    { result: ['kept', 'broken', 'withheld'] },
  ),
  wrongCodes: counter(
    'service_wrong_codes_total',
    'Wrong room codes. refused: not looked up, after too many wrong codes.',
    { result: ['wrong', 'refused'] },
  ),
  listsDelayed: counter(
    'service_lists_delayed_total',
    'Lists that waited for the byte budget of their player, or of their token without sub.',
    { by: ['player', 'token'] },
  ),
}

export type ListMetrics = Metrics<typeof LIST_METRICS>
