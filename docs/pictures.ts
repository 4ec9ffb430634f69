import { arrowTo, boxAt, frame, LINE, textAt, WIDTH } from './svg.ts'

/** Pictures of docs/ that are no conversation: who is who, a time line, what each player sees, and where to look first. */

/** A player has clients, a client has a session, a session has seats in rooms. */
function players(): string {
  const rows: readonly (readonly [string, string, string])[] = [
    ['player', 'a person, named by the sub', 'has one or more'],
    ['client', 'a tab, or a phone', 'has one, on a connection'],
    ['session', 'lasts 60 s without a connection', 'has up to 16'],
    ['seat', 'one member of one room', 'is in one'],
    ['room', 'a state, run by one node', ''],
  ]
  const step = 66
  const drawn = rows.flatMap(([name, meaning, next], at) => {
    const y = 4 + at * step
    return [
      boxAt(4, y, { width: 110, lines: [name] }),
      textAt(128, y + 19, meaning, 'left'),
      ...(next ? [arrowTo([59, y + 28], [59, y + step]), textAt(72, y + 52, next, 'left gone')] : []),
    ]
  })
  return frame(
    'A player has one or more clients. Each client has one session, each session has up to 16 seats, and each seat is in one room',
    4 + rows.length * step - 34,
    drawn,
  )
}

/** What happens after a connection breaks, from top to bottom. */
function reconnecting(): string {
  const events: readonly (readonly [string, string, readonly string[]])[] = [
    ['0 s', 'the connection breaks', ['status: reconnecting; send waits', 'the room runs onDisconnect']],
    [
      '',
      'back in time: the same seat',
      [
        'the client gets what it missed',
        'waiting messages apply once, in order',
        'the room runs onReconnect',
      ],
    ],
    ['20 s', 'at the latest, the server notices', ['a silent network: 2 heartbeats']],
    ['60 s', 'reconnectSeconds: the seat ends', ['the room runs onLeave']],
    ['', 'back too late: a new member', ['the SDK joins again: onJoin', 'messages without ack: not_in_room']],
  ]
  let y = 22
  const drawn = events.flatMap(([time, title, lines]) => {
    const top = y
    y += (lines.length + 1) * LINE + 16
    const kind = time === '60 s' ? 'crash' : 'note'
    return [
      `<circle class="${kind}" cx="62" cy="${top - 5}" r="5"/>`,
      textAt(26, top, time, 'title'),
      textAt(80, top, title, 'left title'),
      ...lines.map((line, at) => textAt(80, top + (at + 1) * LINE, line, 'left')),
    ]
  })
  return frame(
    'A time line. At 0 s the connection breaks. A client that is back within 60 s has the same seat and gets what it missed. At 60 s the seat ends, and a client that returns later is a new member',
    y - 6,
    [`<path class="lane" d="M62 8V${y - 20}"/>`, ...drawn],
  )
}

/** One state, and what is sent to each of three clients. */
function views(): string {
  const parts = ['deck: 7♣ A♠ …', 'hands.ada: Q♥ 2♦', 'hands.bob: 9♠ K♣', 'table: 5♥']
  const columns: readonly (readonly [string, readonly string[]])[] = [
    ['ada gets', ['Q♥ 2♦', '', '5♥']],
    ['bob gets', ['', '9♠ K♣', '5♥']],
    ['a spectator', ['', '', '5♥']],
  ]
  const top = 10 + (parts.length + 1) * LINE
  const drawn = columns.flatMap(([name, seen], at) => {
    const x = 4 + at * 134
    const lines = ['hands.ada', 'hands.bob', 'table'].map((part, row) =>
      seen[row] ? `${part}: ${seen[row]}` : '–',
    )
    return [
      arrowTo([x + 62, top + 4], [x + 62, top + 34]),
      boxAt(x, top + 38, { width: 124, lines: [name, ...lines.map((line) => line.replace('hands.', ''))] }),
    ]
  })
  return frame(
    'One state with a deck, two hands and a table. Ada gets her hand and the table, Bob his hand and the table, a spectator the table only. Nobody gets the deck',
    top + 38 + 4 * LINE + 14,
    [boxAt(90, 4, { width: 220, lines: ['the state of the room', ...parts] }), ...drawn],
  )
}

/** Questions in the order in which their answers exclude most. */
function runbooks(): string {
  const rows: readonly (readonly [string, string])[] = [
    ['Does Redis answer?', 'Redis is gone'],
    ['Has it its data?', 'Redis lost its data'],
    ['Is the address up?', 'public address fails'],
    ['Are all nodes up?', 'a node is down'],
    ['Do players get in?', 'players cannot get in'],
    ['Do all rooms move?', 'a room is stuck'],
    ['Is it fast enough?', 'latency is up'],
  ]
  const step = 54
  const width = 180
  const drawn = rows.flatMap(([question, runbook], at) => {
    const y = 4 + at * step
    const last = at === rows.length - 1
    return [
      boxAt(2, y, { width, lines: [question] }),
      arrowTo([2 + width, y + 14], [WIDTH - width - 2, y + 14]),
      textAt(WIDTH / 2 - 1, y + 9, 'no', 'gone'),
      boxAt(WIDTH - width - 2, y, { width, lines: [runbook], kind: 'crash' }),
      ...(last ? [] : [arrowTo([95, y + 28], [95, y + step]), textAt(112, y + 46, 'yes', 'gone')]),
    ]
  })
  return frame(
    `Ask in this order: ${rows.map(([question, runbook]) => `${question} No: ${runbook}`).join('. ')}`,
    4 + rows.length * step - 20,
    drawn,
  )
}

/** The pictures, by file. */
export const PICTURES: Readonly<Record<string, () => string>> = {
  'docs/players.svg': players,
  'docs/reconnecting.svg': reconnecting,
  'docs/views.svg': views,
  'docs/runbooks.svg': runbooks,
}
