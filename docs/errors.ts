import type { RoomfulErrorCode } from '../client/errors.ts'
import { CLOSE, closeAdvice, ERRORS } from '../shared/protocol/error-codes.ts'
import { code, table } from './protocol-tables.ts'

/** A call or callback that reports the error, its meaning there, and what the caller should do. */
type Row = readonly [from: string, meaning: string, advice: string]

/** Members and callbacks of the client that report errors. */
const CONNECTION = '`connect`, `onConnectionChange`'
const JOIN = '`join`'
const SEND = '`send`'
const TICKET = '`matched`'

const PLAYER_TEXT = 'Show `message`'
const UNKNOWN_OUTCOME = 'the result is unknown. The room may have applied the message'
const LOOK_FIRST = 'Look at `room.state`, then decide'
const LOST = 'the connection was lost'
const SDK_RECONNECTS = 'Nothing: the SDK reconnects'

/** All errors that the SDK reports. It handles the others itself. */
const ERROR_ROWS: Readonly<Record<Exclude<RoomfulErrorCode, 'normal'>, readonly Row[]>> = {
  invalid_payload: [[SEND, 'the data does not fit the schema', 'Fix the page']],
  invalid_message: [[`${SEND}, ${JOIN}`, 'a field has a wrong type or size', 'Fix the page']],
  unknown_type: [[SEND, 'the room type has no such message', 'Fix the page, or deploy the room']],
  not_a_player: [[SEND, 'only players may send this type', 'Offer it to players only']],
  room_logic_refused: [[`${SEND}, ${JOIN}`, 'the room refused. `message` is the reason', PLAYER_TEXT]],
  room_logic_failed: [
    [`${SEND}, ${JOIN}`, "the room's code threw. The state did not change", "Look into the server's log"],
  ],
  rate_limited: [
    [SEND, 'the client exceeds the `rate` of this type', 'Send less often'],
    [
      '`join`, `joinByCode`',
      'the player has created too many rooms, or entered too many wrong codes',
      'Try again later',
    ],
    ['`rooms`', '32 requests for lists have no answer yet', 'Use `watchRooms`'],
    [
      CONNECTION,
      'the player has too many sessions, or sends far too many messages. The client closes',
      'Close other tabs, or send less',
    ],
    [
      TICKET,
      'the queue does not exist yet, and the player has created too many rooms',
      'Queue again after a minute',
    ],
  ],
  matched: [[TICKET, 'a match was found. Only the SDK gets this code', 'Nothing: the SDK joins it']],
  payload_too_large: [[SEND, 'the message exceeds `MAX_MESSAGE_BYTES`', 'Send less']],
  too_many_requests: [['`request`', '32 requests of the room have no reply yet', 'Await replies first']],
  no_reply: [['`request`', 'the room applied the message. Its type has no reply', 'Use `send`']],
  queue_full: [
    [SEND, 'too many messages wait for an ack (`maxUnacked`, `maxUnackedBytes`)', 'Await earlier messages'],
    [TICKET, 'the queue, or its shard, is full', 'Queue again later'],
  ],
  storage_full: [
    [SEND, "the tab's storage is full (`resume: 'tab'`). The message was not sent", 'Free `sessionStorage`'],
  ],
  resume_failed: [[SEND, UNKNOWN_OUTCOME, LOOK_FIRST]],
  not_in_room: [[SEND, UNKNOWN_OUTCOME, LOOK_FIRST]],
  outcome_unknown: [[SEND, UNKNOWN_OUTCOME, LOOK_FIRST]],
  unknown_room_type: [
    [`${JOIN}, \`rooms\``, 'the server has no such room type', 'Fix the page, or deploy the room'],
  ],
  invalid_options: [
    ['`connect`', 'the address does not begin with `ws://` or `wss://`', 'Fix the page'],
    [JOIN, 'the room rejects the options, or its type has no spectators', 'Fix the page'],
    [
      '`rooms`, `joinOrCreate`',
      'the query is invalid, or checks more than 10,000 rooms',
      'Use other conditions',
    ],
  ],
  room_not_found: [[`${JOIN}, \`joinByCode\``, 'the room does not exist', 'Tell the player']],
  forbidden: [[JOIN, 'the token does not allow this room', 'Get another token']],
  join_refused: [
    [JOIN, '`admit` refused the player. `message` is the reason', PLAYER_TEXT],
    [TICKET, '`admit` of the match refused the player. `message` is the reason', PLAYER_TEXT],
  ],
  room_full: [[JOIN, 'no place for this role is free', 'Join another room, or watch']],
  banned: [
    [
      `${JOIN}, ${CONNECTION}`,
      'the player is banned from the [room](rooms.md#bans), the room type or the project',
      PLAYER_TEXT,
    ],
    [TICKET, 'the player is banned from the queue or from the room type of its matches', PLAYER_TEXT],
  ],
  already_joined: [
    [JOIN, 'this client, or another client of the player, is in the room (`sameSub`)', 'Tell the player'],
  ],
  too_many_rooms: [
    [`${JOIN}, \`watchRooms\``, 'the client is in 16 rooms, or watches 4 lists', 'Leave one'],
    [
      JOIN,
      'the player has [4 seats](rooms.md#a-player-who-joins-twice) in the room',
      'Leave the room in another tab or device',
    ],
    [
      JOIN,
      'the player has created [too many](limits.md#rooms-and-lists) rooms that sleep or have timers',
      'Wait until one ends',
    ],
    [JOIN, 'too many clients share one token [without `sub`](limits.md#guests)', 'Give each player a `sub`'],
  ],
  project_full: [[JOIN, 'the project has its maximum number of rooms', 'Tell your operator']],
  client_outdated: [[JOIN, 'the client is too old for this room', 'Reload or update the page']],
  room_unavailable: [[`${JOIN}, ${SEND}, \`rooms\``, 'the room does not answer now', 'Try again']],
  overloaded: [[`${JOIN}, \`onConnectionChange\``, 'all servers are full', 'Try again later']],
  replaced: [
    ['`onLeave`', 'another client of the player has the seat', 'Tell the player'],
    [TICKET, 'another client of the player has the ticket', 'Tell the player'],
  ],
  unauthenticated: [['`connect`', 'the token is invalid', 'Fix `getToken`']],
  token_expired: [[CONNECTION, 'the token has expired. The client closes', 'Pass `getToken`']],
  revoked: [[CONNECTION, 'the key or the player was revoked. The client closes', 'Sign in again']],
  token_unavailable: [
    [
      '`connect`, `onError`',
      "`getToken` failed. `message` has your backend's answer",
      'Check `getToken`. While connected, the SDK tries again',
    ],
  ],
  invalid_token: [['`onError`', 'the server rejected the new token', 'Nothing: the SDK fetches another']],
  connection_failed: [
    [
      '`connect`',
      'the server did not answer in time',
      '[Check that the server runs there](guides/troubleshooting.md)',
    ],
  ],
  connection_lost: [['`onConnectionChange`', LOST, SDK_RECONNECTS]],
  draining: [['`onConnectionChange`', LOST, SDK_RECONNECTS]],
  session_taken_over: [
    [
      '`onConnectionChange`',
      'another connection continues this session. The client closes',
      'Tell the player',
    ],
  ],
  slow_consumer: [['`onConnectionChange`', LOST, SDK_RECONNECTS]],
  handshake_timeout: [['`onConnectionChange`', LOST, SDK_RECONNECTS]],
  protocol_error: [
    ['`onConnectionChange`', 'the client or the server received an invalid message', 'Report it to us'],
  ],
  client_closed: [['pending promises', '`close()` was called', 'Nothing']],
  cancelled: [[TICKET, 'the ticket was cancelled', 'Nothing']],
  ticket_refused: [
    [
      TICKET,
      '`entry`, or [three matches](#if-a-match-fails), refused the player. `message` is the reason',
      PLAYER_TEXT,
    ],
  ],
  party_refused: [[TICKET, '`admit` of the match refused another player of the party', 'Tell the player']],
  match_failed: [
    [TICKET, "the game's code failed in three [matches](#if-a-match-fails)", "Look into the server's log"],
  ],
  gave_up: [[TICKET, 'the ticket has waited for `giveUpSeconds`', 'Offer to queue again']],
  already_queued: [
    [TICKET, 'this client has a ticket, or the player has one with other data', 'Cancel that ticket first'],
  ],
  party_full: [[TICKET, 'the party is complete', 'Make another party']],
  party_timeout: [[TICKET, 'the party was incomplete for 60 s', 'Share the code again, and queue']],
  seat_lost: [
    [
      JOIN,
      'the seat from `client.seats()` has ended, or this page has joined the room',
      'Call `join(type, { key })`',
    ],
    [TICKET, 'the client was disconnected for longer than `reconnectSeconds`', 'Offer to queue again'],
    [TICKET, 'the player was kicked or banned. `message` is the reason', PLAYER_TEXT],
  ],
}

/** Errors of the client that are retryable. */
const LOCAL_RETRYABLE: readonly string[] = ['connection_failed', 'connection_lost', 'token_unavailable']

/** True if the error is retryable. Where a code is both, an error that closes the connection and another one, `from` decides. */
function isRetryable(name: string, from: string): boolean {
  // The room may have applied the message: see `Seat.forgotten`.
  if (name === 'resume_failed' && from === SEND) return false
  if (Object.hasOwn(ERRORS, name) && from !== CONNECTION) return ERRORS[name as keyof typeof ERRORS].retryable
  if (Object.hasOwn(CLOSE, name)) return closeAdvice(CLOSE[name as keyof typeof CLOSE]) !== 'end'
  return LOCAL_RETRYABLE.includes(name)
}

/** Returns the errors of tickets of queues, or all others. Codes with equal texts share a row. */
export function errorTable(ofTickets: boolean): string {
  const rows = Object.entries(ERROR_ROWS)
    .flatMap(([name, about]) => about.map((row) => [name, ...row] as const))
    .filter(([, from]) => (from === TICKET) === ofTickets)
  const byText = new Map<string, (readonly [name: string, ...Row])[]>()
  for (const row of rows) {
    const text = row.slice(1).join()
    byText.set(text, [...(byText.get(text) ?? []), row])
  }
  const header = ['Code', ...(ofTickets ? [] : ['From']), 'Meaning', 'What to do']
  return table(
    header,
    [...byText.values()].map((equal) => [
      equal.map(([name, from]) => (isRetryable(name, from) ? `${code(name)} ↻` : code(name))).join(', '),
      ...(ofTickets ? equal[0]!.slice(2) : equal[0]!.slice(1)),
    ]),
  )
}
