import { areas, heatmap, lines, NODE, percentile, percentiles, type Row, rate, share } from '../panel.ts'

/** From a socket to a seat. */
export const GETTING_IN: Row = {
  title: 'Getting in',
  panels: [
    areas('Handshakes', 'cps', {
      about:
        'How handshakes end, each second. Besides welcome and resumed they have the name of a close code: overloaded (the node is full, or Redis silent) and unauthenticated (a wrong token) are worth a look.',
      of: { '{{result}}': `${rate(`service_handshakes_total{${NODE}}`, 'result')} > 0` },
      noValue: 'no one came',
    }),
    lines('Handshake latency', 's', {
      about: 'From an accepted socket to welcome, resumes included.',
      of: percentiles('service_handshake_duration_seconds'),
      red: 2,
      noValue: 'no one came',
    }),
    lines('Handshakes that fail', 'percentunit', {
      about:
        'Share of the handshakes that a player can do nothing about: the node is full, Redis or control silent, the token not known, or no hello came in time.',
      of: {
        fail: share(
          'service_handshakes_total',
          NODE,
          'result=~"overloaded|unauthenticated|handshake_timeout"',
        ),
      },
      red: 0.1,
      noValue: 'no one came',
    }),
    areas('Joins', 'cps', {
      about: 'How joins end, each second: joined, or the code of the error.',
      of: { '{{result}}': `${rate(`service_joins_total{${NODE}}`, 'result')} > 0` },
      noValue: 'no one joined',
    }),
    lines('Join latency', 's', {
      about: 'From a join to joined; the room may have to be opened, on another node as well.',
      of: percentiles('service_join_duration_seconds'),
      red: 2,
      noValue: 'no one joined',
    }),
    lines('Joins that fail', 'percentunit', {
      about:
        'Share of the joins that fail though the player may join: the room cannot be reached, no node takes another, or its logic throws.',
      of: {
        fail: share('service_joins_total', NODE, 'result=~"room_unavailable|overloaded|room_logic_failed"'),
      },
      red: 0.05,
      noValue: 'no one joined',
    }),
  ],
}

/** What players do, and how soon they see it. */
export const MESSAGES: Row = {
  title: 'Messages and latency',
  panels: [
    lines('Ack latency', 's', {
      about:
        'The round trip at the server: from a reliable message to its ack, applied, and committed where the room type is durable.',
      of: percentiles('service_message_ack_duration_seconds'),
      red: 0.25,
      noValue: 'no reliable messages',
    }),
    heatmap('Acks by latency', 's', {
      about: 'How many acks took how long: two bands are two kinds of rooms, or two kinds of nodes.',
      of: { '{{le}}': rate(`service_message_ack_duration_seconds_bucket{${NODE}}`, 'le') },
      noValue: 'no reliable messages',
    }),
    lines('Round trip of clients', 's', {
      about: 'The network between players and their nodes: from a ping of the websocket to its pong.',
      of: percentiles('service_round_trip_duration_seconds'),
      noValue: 'no players',
    }),
    lines('Delivery latency (p99)', 's', {
      about:
        'From a message to the update that carries its effect to the members. Updates wait for the rate of their room: 20 a second are up to 50 ms.',
      of: {
        '{{room_type}}': percentile(0.99, 'service_message_delivery_duration_seconds', NODE, 'room_type'),
      },
      red: 0.75,
      noValue: 'no messages',
    }),
    areas('Messages from players', 'cps', {
      about: 'What nodes receive each second, by kind.',
      of: { '{{t}}': `${rate(`service_messages_received_total{${NODE}}`, 't')} > 0` },
      noValue: 'no messages',
    }),
    areas('Messages applied', 'cps', {
      about: 'What room logic has applied each second, by room type.',
      of: {
        '{{room_type}}': rate(`service_messages_applied_total{${NODE}}`, 'room_type'),
      },
    }),
    lines('Traffic', 'Bps', {
      about: 'Bytes of messages from players, and bytes written to their sockets, before TLS.',
      of: {
        in: rate(`service_received_bytes_total{${NODE}}`),
        out: rate(`service_written_bytes_total{${NODE}}`),
      },
    }),
  ],
}

/** What went wrong, by what it is called on the wire. */
export const ERRORS: Row = {
  title: 'Errors',
  panels: [
    areas('Errors told to players', 'cps', {
      about:
        'Error messages and connections closed for a fault, each second. The names are in docs/protocol.md.',
      of: { '{{code}}': `${rate(`service_websocket_errors_total{${NODE}}`, 'code')} > 0` },
      noValue: 'no errors',
    }),
    areas('Errors of rooms', 'cps', {
      about:
        'Messages, joins, leaves and ticks that ended with an error. room_logic_refused is what room logic refused, room_logic_failed what it threw: bugs.',
      of: {
        '{{room_type}} {{code}}': `${rate(`service_room_errors_total{${NODE}}`, 'room_type, code')} > 0`,
      },
      noValue: 'no errors',
    }),
    areas('Connections that end', 'cps', {
      about:
        'By the name of the close code; normal: the player said goodbye, lost: without a word. Steps of draining are deploys.',
      of: { '{{name}}': `${rate(`service_closes_total{${NODE}}`, 'name')} > 0` },
      noValue: 'no one left',
    }),
    lines('Messages over the limit', 'cps', {
      about: 'Not applied because a session sends too many in all, or too many of a type.',
      of: { 'by {{by}}': rate(`service_rate_limited_total{${NODE}}`, 'by') },
    }),
    lines('Room logic that fails', 'percentunit', {
      about: 'Share of what happens in rooms that ends with an exception. A jump after a deploy is a bug.',
      of: {
        '{{room_type}}': `${rate(`service_room_errors_total{${NODE},code="room_logic_failed"}`, 'room_type')} / (${rate(`service_messages_applied_total{${NODE}}`, 'room_type')} + ${rate(`service_room_errors_total{${NODE},code="room_logic_failed"}`, 'room_type')} > 0)`,
      },
      orange: 0.05,
      noValue: 'no messages',
    }),
    lines('Questions about keys', 'cps', {
      about:
        'What nodes ask control about keys of tokens; unreachable keeps new players out. Of issuers of JWTs: fetches of their keys.',
      of: {
        '{{result}}': rate(`service_key_checks_total{${NODE}}`, 'result'),
        'login {{result}}': rate(`service_jwks_fetches_total{${NODE}}`, 'result'),
      },
    }),
  ],
}
