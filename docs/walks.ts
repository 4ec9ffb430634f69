import { CHARACTER, frame, textAt, WIDTH } from './svg.ts'

/** Pictures of who talks to whom. The numbers are those of the steps in the page. */

const LANES = ['client', 'edge node', 'owner node', 'store'] as const

/** A message from one lane to another. */
interface Arrow {
  readonly from: string
  readonly to: string
  readonly text: string
}

/** Work of one lane. `crash`: the lane ends here. */
interface Note {
  readonly at: string
  readonly text: string
  readonly crash?: true
}

interface Walk {
  /** Text for readers who do not see the picture. */
  readonly label: string
  /** Default: those of the tour. */
  readonly lanes?: readonly string[]
  readonly steps: readonly (Arrow | Note)[]
}

const MESSAGE: Walk = {
  label:
    'A message: the client sends it to its edge, the edge to the owner of the room. The owner runs the handler, commits the update to the store, and sends it to the edges, which write it to all members',
  steps: [
    { from: 'client', to: 'edge node', text: '1 message, ref 7' },
    { at: 'edge node', text: '2 pays, keeps it until its ack' },
    { from: 'edge node', to: 'owner node', text: '3 message' },
    { at: 'owner node', text: '4 to 6 handler: one atomic turn' },
    { at: 'owner node', text: '7 flush: all changes, one update' },
    { from: 'owner node', to: 'store', text: '8 append, fenced' },
    { from: 'store', to: 'owner node', text: 'stored' },
    { from: 'owner node', to: 'edge node', text: '9 update, once for each edge' },
    { from: 'edge node', to: 'client', text: '10 patch to all, ack 7' },
    { at: 'client', text: '11 applies the patch, compares the checksum' },
  ],
}

const JOIN: Walk = {
  label:
    'A join that makes a room: the edge records the seat, claims the room in the store, and runs it. The room admits the member, writes its first snapshot, and answers with the state',
  steps: [
    { from: 'client', to: 'edge node', text: '1 join' },
    { from: 'edge node', to: 'store', text: '2 session record with the seat' },
    { at: 'edge node', text: '3 searches the owner: none, so this node' },
    { from: 'edge node', to: 'store', text: '4 open: find the owner, or claim' },
    { from: 'store', to: 'owner node', text: 'fence: epoch 1' },
    { at: 'owner node', text: '5 slot opens the room: create' },
    { at: 'owner node', text: '6 admit, onJoin, flush' },
    { from: 'owner node', to: 'store', text: '7 first snapshot' },
    { from: 'owner node', to: 'edge node', text: '8 joined, state, members' },
    { from: 'edge node', to: 'client', text: '9 joined, snapshot' },
  ],
}

const RESUME: Walk = {
  label:
    'A resume: another edge takes the session over with one compare-and-set in the store, welcomes the client, and asks the owner of each room for the missed updates',
  steps: [
    { at: 'client', text: 'the connection breaks' },
    { from: 'client', to: 'edge node', text: '1 hello: resume token, positions' },
    { from: 'edge node', to: 'store', text: '2 take the session: compare-and-set' },
    { from: 'store', to: 'edge node', text: 'its seats' },
    { from: 'edge node', to: 'client', text: '3 welcome, next resume token' },
    { from: 'edge node', to: 'owner node', text: '4 attach: epoch, seq' },
    { at: 'owner node', text: '5 history: the missed updates' },
    { from: 'owner node', to: 'edge node', text: '6 attached: updates or state' },
    { from: 'edge node', to: 'client', text: '6 missed patches, acks' },
    { from: 'client', to: 'owner node', text: '7 messages without an ack, again' },
  ],
}

const NODE_DIES: Walk = {
  label:
    'A node dies: the edges notice it, ask for the new owner, and one node claims the room under the next epoch, restores it from the store, and answers with the missed updates',
  steps: [
    { at: 'owner node', text: 'the owner dies', crash: true },
    { from: 'store', to: 'edge node', text: '1 its channel has no subscriber' },
    { at: 'edge node', text: '2 attaches its members again' },
    { from: 'edge node', to: 'store', text: '3, 4 who owns it? claim under a lock' },
    { from: 'store', to: 'owner node', text: 'epoch + 1, snapshot, journal' },
    { at: 'owner node', text: '5, 6 a new owner restores the room' },
    { from: 'owner node', to: 'edge node', text: '7 attached: missed updates' },
    { from: 'edge node', to: 'client', text: '8 missed patches' },
    { from: 'edge node', to: 'owner node', text: '8 messages without an ack, again' },
  ],
}

const SESSION: Walk = {
  label:
    'A session: hello and welcome, a join with its snapshot, a message with its patch and ack, a gap with a resync, and a resume on a second connection with the missed patches and the kept messages',
  lanes: ['client', 'server'],
  steps: [
    { from: 'client', to: 'server', text: 'hello: token' },
    { from: 'server', to: 'client', text: 'welcome: session_id, resume_token' },
    { from: 'client', to: 'server', text: 'ping' },
    { from: 'client', to: 'server', text: 'join: request_id 1' },
    { from: 'server', to: 'client', text: 'joined: request_id 1, member_id' },
    { from: 'server', to: 'client', text: 'state.snapshot: seq 10' },
    { from: 'client', to: 'server', text: 'message: ref 1' },
    { from: 'server', to: 'client', text: 'state.patch: seq 11; ack: ref 1' },
    { from: 'server', to: 'client', text: 'state.patch: seq 13' },
    { at: 'client', text: 'seq 12 is missing' },
    { from: 'client', to: 'server', text: 'state.resync: sequence' },
    { from: 'server', to: 'client', text: 'state.resync: seq 13' },
    { from: 'client', to: 'server', text: 'message: ref 2' },
    { at: 'client', text: 'the connection breaks', crash: true },
    { from: 'client', to: 'server', text: 'hello: resume, seq 13' },
    { from: 'server', to: 'client', text: 'welcome: next resume_token' },
    { from: 'server', to: 'client', text: 'state.patch: seq 14, 15' },
    { from: 'client', to: 'server', text: 'ping; message: ref 2 again' },
    { from: 'server', to: 'client', text: 'ack: ref 2, applied once' },
  ],
}

const KILL: Walk = {
  label:
    'A server that runs a room is killed. The message that it has committed is not lost: another node claims the room under the next epoch, and answers the repeated message once',
  lanes: ['client', 'edge', 'owner', 'Redis', 'next'],
  steps: [
    { from: 'client', to: 'edge', text: 'message 7' },
    { from: 'edge', to: 'owner', text: 'message 7' },
    { from: 'owner', to: 'Redis', text: 'commit, epoch 4' },
    { at: 'owner', text: 'kill -9: no ack', crash: true },
    { from: 'Redis', to: 'edge', text: 'the owner is gone' },
    { from: 'next', to: 'Redis', text: 'claim: epoch 5' },
    { from: 'Redis', to: 'next', text: 'state with 7' },
    { from: 'edge', to: 'next', text: 'message 7 again' },
    { at: 'next', text: '7 is applied: not again' },
    { from: 'next', to: 'edge', text: 'ack 7' },
    { from: 'edge', to: 'client', text: 'ack 7, within 2 s' },
  ],
}

const SIGN_IN: Walk = {
  label:
    'Signing in: the page logs in at your backend, the backend gets a token from control with its key, and the page connects to a node with the token',
  lanes: ['page', 'your backend', 'control', 'node'],
  steps: [
    { from: 'page', to: 'your backend', text: '1 login, as ever' },
    { from: 'your backend', to: 'control', text: '2 POST /tokens: sub' },
    { from: 'control', to: 'your backend', text: '3 token, 5 minutes' },
    { from: 'your backend', to: 'page', text: '4 token' },
    { from: 'page', to: 'node', text: '5 hello: token' },
    { from: 'node', to: 'control', text: '6 is the key valid?' },
    { from: 'node', to: 'page', text: '7 welcome' },
  ],
}

const laneAt = (lane: string, lanes: readonly string[]): number =>
  (WIDTH / lanes.length) * (lanes.indexOf(lane) + 0.5)

/** Returns the centre for something of this width, so that all of it is in the picture. */
const within = (centre: number, width: number): number =>
  Math.min(Math.max(centre, width / 2 + 2), WIDTH - width / 2 - 2)

/** Heights of the header, a step and a box. */
const [TOP, ROW, BOX] = [44, 38, 26]

function arrow({ from, to, text }: Arrow, y: number, lanes: readonly string[]): string {
  const [start, end] = [laneAt(from, lanes), laneAt(to, lanes)]
  const way = Math.sign(end - start)
  const tip = end - way * 2
  const centre = within((start + end) / 2, text.length * CHARACTER)
  return [
    `<path class="arrow" d="M${start} ${y}H${tip}m${-way * 7} -4l${way * 7} 4l${-way * 7} 4"/>`,
    textAt(centre, y - 7, text),
  ].join('\n')
}

function note({ at, text, crash }: Note, y: number, lanes: readonly string[]): string {
  const lane = laneAt(at, lanes)
  const width = text.length * CHARACTER + 16
  const centre = within(lane, width)
  const left = (centre - width / 2).toFixed(0)
  return [
    `<rect class="${crash ? 'crash' : 'note'}" x="${left}" y="${y - BOX + 6}" width="${width.toFixed(0)}" height="${BOX}" rx="5"/>`,
    textAt(centre, y - 2, text),
    // The box can be wider than the lane. The dot is on the lane that acts.
    `<circle class="${crash ? 'crash' : 'note'}" cx="${lane}" cy="${y - BOX + 6}" r="3"/>`,
  ].join('\n')
}

/** Returns a walk as SVG: a lane for each party, and the steps from top to bottom. */
function picture({ label, lanes = LANES, steps }: Walk): string {
  const height = TOP + steps.length * ROW + 8
  const lines = lanes.map((lane) => {
    const x = laneAt(lane, lanes)
    return `<path class="lane" d="M${x} 30V${height - 4}"/>${textAt(x, 20, lane, 'title')}`
  })
  const drawn = steps.map((step, i) => {
    const y = TOP + i * ROW + 24
    return 'from' in step ? arrow(step, y, lanes) : note(step, y, lanes)
  })
  return frame(label, height, [...lines, ...drawn])
}

/** The pictures, by file. */
export const WALKS: Readonly<Record<string, () => string>> = {
  'docs/walk-message.svg': () => picture(MESSAGE),
  'docs/walk-join.svg': () => picture(JOIN),
  'docs/walk-resume.svg': () => picture(RESUME),
  'docs/walk-node-dies.svg': () => picture(NODE_DIES),
  'docs/walk-session.svg': () => picture(SESSION),
  'docs/walk-kill.svg': () => picture(KILL),
  'docs/walk-sign-in.svg': () => picture(SIGN_IN),
}
