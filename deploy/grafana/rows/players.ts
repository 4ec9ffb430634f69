import type { Row } from '../panel.ts'
import { NODE, percentile, percentiles, rate, share } from '../query.ts'

/** From a socket to a seat. */
export const GETTING_IN: Row = {
  title: 'Getting in',
  panels: [
    {
      kind: 'areas',
      title: 'Handshakes',
      description:
        'How handshakes end, each second. Besides welcome and resumed they have the name of a close code: overloaded (the node is full, or Redis silent) and unauthenticated (a wrong token) are worth a look.',
      unit: 'cps',
      queries: [{ expr: `${rate(`service_handshakes_total{${NODE}}`, 'result')} > 0`, legend: '{{result}}' }],
      noValue: 'no one came',
    },
    {
      kind: 'lines',
      title: 'Handshake latency',
      description: 'From an accepted socket to welcome, resumes included.',
      unit: 's',
      queries: percentiles('service_handshake_duration_seconds', NODE),
      noValue: 'no one came',
      thresholds: [{ value: 2, color: 'red' }],
    },
    {
      kind: 'lines',
      title: 'Handshakes that fail',
      description:
        'Share of the handshakes that a player can do nothing about: the node is full, Redis or control silent, the token not known, or no hello came in time.',
      unit: 'percentunit',
      queries: [
        {
          expr: share(
            'service_handshakes_total',
            NODE,
            'result=~"overloaded|unauthenticated|handshake_timeout"',
          ),
          legend: 'fail',
        },
      ],
      noValue: 'no one came',
      thresholds: [{ value: 0.1, color: 'red' }],
    },
    {
      kind: 'areas',
      title: 'Joins',
      description: 'How joins end, each second: joined, or the code of the error.',
      unit: 'cps',
      queries: [{ expr: `${rate(`service_joins_total{${NODE}}`, 'result')} > 0`, legend: '{{result}}' }],
      noValue: 'no one joined',
    },
    {
      kind: 'lines',
      title: 'Join latency',
      description: 'From a join to joined; the room may have to be opened, on another node as well.',
      unit: 's',
      queries: percentiles('service_join_duration_seconds', NODE),
      noValue: 'no one joined',
      thresholds: [{ value: 2, color: 'red' }],
    },
    {
      kind: 'lines',
      title: 'Joins that fail',
      description:
        'Share of the joins that fail though the player may join: the room cannot be reached, no node takes another, or its logic throws.',
      unit: 'percentunit',
      queries: [
        {
          expr: share('service_joins_total', NODE, 'result=~"room_unavailable|overloaded|room_logic_failed"'),
          legend: 'fail',
        },
      ],
      noValue: 'no one joined',
      thresholds: [{ value: 0.05, color: 'red' }],
    },
  ],
}

/** What players do, and how soon they see it. */
export const MESSAGES: Row = {
  title: 'Messages and latency',
  panels: [
    {
      kind: 'lines',
      title: 'Ack latency',
      description:
        'The round trip at the server: from a reliable message to its ack, applied, and committed where the room type is durable.',
      unit: 's',
      queries: percentiles('service_message_ack_duration_seconds', NODE),
      noValue: 'no reliable messages',
      thresholds: [{ value: 0.25, color: 'red' }],
    },
    {
      kind: 'heatmap',
      title: 'Acks by latency',
      description: 'How many acks took how long: two bands are two kinds of rooms, or two kinds of nodes.',
      unit: 's',
      queries: [
        { expr: rate(`service_message_ack_duration_seconds_bucket{${NODE}}`, 'le'), legend: '{{le}}' },
      ],
      noValue: 'no reliable messages',
    },
    {
      kind: 'lines',
      title: 'Delivery latency (p99)',
      description:
        'From a message to the update that carries its effect to the members. Updates wait for the rate of their room: 20 a second are up to 50 ms.',
      unit: 's',
      queries: [
        {
          expr: percentile(0.99, 'service_message_delivery_duration_seconds', NODE, 'room_type'),
          legend: '{{room_type}}',
        },
      ],
      noValue: 'no messages',
      thresholds: [{ value: 0.75, color: 'red' }],
    },
    {
      kind: 'areas',
      title: 'Messages from players',
      description: 'What nodes receive each second, by kind.',
      unit: 'cps',
      queries: [{ expr: `${rate(`service_messages_received_total{${NODE}}`, 't')} > 0`, legend: '{{t}}' }],
      noValue: 'no messages',
    },
    {
      kind: 'areas',
      title: 'Messages applied',
      description: 'What room logic has applied each second, by room type.',
      unit: 'cps',
      queries: [
        { expr: rate(`service_messages_applied_total{${NODE}}`, 'room_type'), legend: '{{room_type}}' },
      ],
    },
    {
      kind: 'lines',
      title: 'Traffic',
      description: 'Bytes of messages from players, and bytes written to their sockets, before TLS.',
      unit: 'Bps',
      queries: [
        { expr: rate(`service_received_bytes_total{${NODE}}`), legend: 'in' },
        { expr: rate(`service_written_bytes_total{${NODE}}`), legend: 'out' },
      ],
    },
  ],
}

/** What went wrong, by what it is called on the wire. */
export const ERRORS: Row = {
  title: 'Errors',
  panels: [
    {
      kind: 'areas',
      title: 'Errors told to players',
      description:
        'Error messages and connections closed for a fault, each second. The names are in docs/protocol.md.',
      unit: 'cps',
      queries: [
        { expr: `${rate(`service_websocket_errors_total{${NODE}}`, 'code')} > 0`, legend: '{{code}}' },
      ],
      noValue: 'no errors',
    },
    {
      kind: 'areas',
      title: 'Errors of rooms',
      description:
        'Messages, joins, leaves and ticks that ended with an error. room_logic_refused is what room logic refused, room_logic_failed what it threw: bugs.',
      unit: 'cps',
      queries: [
        {
          expr: `${rate(`service_room_errors_total{${NODE}}`, 'room_type, code')} > 0`,
          legend: '{{room_type}} {{code}}',
        },
      ],
      noValue: 'no errors',
    },
    {
      kind: 'areas',
      title: 'Connections that end',
      description:
        'By the name of the close code; normal: the player said goodbye, lost: without a word. Steps of draining are deploys.',
      unit: 'cps',
      queries: [{ expr: `${rate(`service_closes_total{${NODE}}`, 'name')} > 0`, legend: '{{name}}' }],
      noValue: 'no one left',
    },
    {
      kind: 'lines',
      title: 'Messages over the limit',
      description: 'Not applied because a session sends too many in all, or too many of a type.',
      unit: 'cps',
      queries: [{ expr: rate(`service_rate_limited_total{${NODE}}`, 'by'), legend: 'by {{by}}' }],
    },
    {
      kind: 'lines',
      title: 'Room logic that fails',
      description:
        'Share of what happens in rooms that ends with an exception. A jump after a deploy is a bug.',
      unit: 'percentunit',
      queries: [
        {
          expr: `${rate(`service_room_errors_total{${NODE},code="room_logic_failed"}`, 'room_type')} / (${rate(`service_messages_applied_total{${NODE}}`, 'room_type')} + ${rate(`service_room_errors_total{${NODE},code="room_logic_failed"}`, 'room_type')} > 0)`,
          legend: '{{room_type}}',
        },
      ],
      noValue: 'no messages',
      thresholds: [{ value: 0.05, color: 'orange' }],
    },
    {
      kind: 'lines',
      title: 'Questions about keys',
      description: 'What nodes ask control about keys of tokens; unreachable keeps new players out.',
      unit: 'cps',
      queries: [{ expr: rate(`service_key_checks_total{${NODE}}`, 'result'), legend: '{{result}}' }],
    },
  ],
}
