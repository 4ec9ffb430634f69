import { HIDE } from './hide.ts'
import { KEEP, MOVE } from './keep.ts'
import { FIND, PLAY } from './play.ts'
import { ADDRESS, HOSTS, type Scenario, STARTS, type Step } from './script.ts'
import { SMALL } from './small.ts'
import { WATCH } from './watch.ts'

/** Content of docs/protocol-scenarios.json. */
export interface Scenarios {
  readonly about: string
  readonly format: Readonly<Record<string, string>>
  readonly client: {
    readonly address: string
    readonly hosts: readonly string[]
    readonly project_id: string
  }
  readonly starts: Readonly<Record<string, readonly Step[]>>
  readonly scenarios: readonly Scenario[]
}

const ABOUT =
  'Scenarios of docs/protocol.md: what a client does, step by step. A runner is the server and the application, and uses a fake clock.'

/** Meanings of the fields. */
const FORMAT = {
  configuration:
    'client in this file: its address, other hosts that may see its resume token, its project. The n-th token that it asks for is token-n. If its random numbers can be replaced, each is 0.5',
  starts: 'steps that several scenarios begin with',
  scenario: 'name, level and rule of docs/protocol.md; start: one of starts, whose steps come first; steps',
  do: 'the application calls connect, join (room_type, options), leave (room_id), send (room_id, type, data; times: so often) or goodbye; connect may have another address. If the client refuses a call, do not stop. token_delay: from now on, each token takes ms; at level 6 also list or watch (room_type, query), end_watch, join_by_code (code) or join_or_create (room_type, options, query); at level 7, join has watch. as: name of the outcome, list or watch. send with ref true: a message with a ref; with request true: one whose reply the application waits for',
  open: 'wait until the client opens its n-th socket, and accept it; let the clock skip waits such as backoff. url: its address. refuse: let it fail instead. This socket is the current one from now on',
  client:
    'wait until the client sends its next message on the socket, and compare the fields that are given. Pass over ping, unless the step has ping. null: it has sent nothing more',
  server:
    'send this message in JSON, or the frames of msgpack (hexadecimal) instead. A step with msgpack only is for MessagePack only',
  close: 'close the socket with this code; 1006: cut the connection',
  at_most:
    'pass over the messages that the client has sent on the socket. Without pings, there are at most so many',
  closed: 'wait until the client has closed its n-th socket',
  wait_ms: 'advance the clock',
  on: 'number of the socket of this step, if it is not the current one',
  expect:
    'compare what the application sees: state (base and layers merged) and members (in any order) of a room (room_id, or the first one), events since the last time (name, data), seat (joined, or the reason of the own left), role (player or spectator: what this client is) and spectators (their number), sockets (how many were opened), waited_ms (the least and the greatest sum of the waits of all open since the last time), status of the client (online, reconnecting, ended), lists by name: for each list that has arrived, the ids of its rooms, and outcomes by name: pending, done, {reply}, {error: code}, or unknown (the seat is gone)',
}

const starts = Object.entries(STARTS).map(([name, start]) => [name, start().script.steps] as const)
const scenarios = [...PLAY, ...KEEP, ...HIDE, ...SMALL, ...MOVE, ...FIND, ...WATCH]

/** Returns docs/protocol-scenarios.json, with one step per line. */
export function scenariosJson(): string {
  const list = (steps: readonly Step[], indent: string) =>
    steps.map((step) => `${indent}${JSON.stringify(step)}`).join(',\n')
  const started = starts.map(
    ([name, steps]) => `    ${JSON.stringify(name)}: [\n${list(steps, '      ')}\n    ]`,
  )
  const written = scenarios.map(
    ({ steps, ...head }) =>
      `    {${JSON.stringify(head).slice(1, -1)}, "steps": [\n${list(steps, '      ')}\n    ]}`,
  )
  const client = JSON.stringify({ address: ADDRESS, hosts: HOSTS, project_id: 'prj_1' })
  return `{
  "about": ${JSON.stringify(ABOUT)},
  "format": ${JSON.stringify(FORMAT, null, 4).replace(/}$/, '  }')},
  "client": ${client},
  "starts": {
${started.join(',\n')}
  },
  "scenarios": [
${written.join(',\n')}
  ]
}
`
}
