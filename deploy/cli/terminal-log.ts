import { relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { styleText } from 'node:util'
import { isOwnFrame } from '../../dataplane/room/hooks.ts'

/** Log line, as pino writes it. */
interface Entry {
  readonly level: 'debug' | 'info' | 'warn' | 'error' | 'fatal'
  readonly time: string
  readonly msg: string
  readonly room_id?: string
  readonly file?: string
  readonly reason?: string
  readonly sub?: string
  readonly member_id?: string
  readonly spectator?: boolean
  readonly players?: number
  /** Reason why the room has left this node. */
  readonly end?: string
  /** Failed handler. */
  readonly failed?: string
  /** Hook that was cut off, its limit, and its place in the code. */
  readonly hook?: string
  readonly limit_ms?: number
  /** Duration of a slow turn. */
  readonly ms?: number
  readonly at?: string
  readonly err?: { readonly name?: string; readonly message?: string; readonly stack?: string }
}

/** Log lines that a developer sees in another form, or does not need (undefined), by their text. */
const SHOWN: Readonly<Record<string, (entry: Entry) => string | undefined>> = {
  'member joined': (entry) =>
    `${playerOf(entry)} ${entry.spectator ? 'watches' : 'joined'} ${entry.room_id}, ${playersOf(entry)}`,
  'member seated': (entry) => `${playerOf(entry)} plays in ${entry.room_id}, ${playersOf(entry)}`,
  'member unseated': (entry) => `${playerOf(entry)} watches ${entry.room_id}, ${playersOf(entry)}`,
  'member left': (entry) =>
    `${playerOf(entry)} left ${entry.room_id}${entry.reason === 'left' ? '' : ` (${entry.reason})`}, ${playersOf(entry)}`,
  'room ended': (entry) => (entry.end === 'disposed' ? `${entry.room_id} ended` : undefined),
  'a turn did not return and was cut off': ({ room_id: id, hook, at = '', limit_ms: ms }) =>
    `${id}: ${hook} did not return within ${ms} ms and was cut off${placeOf(`    at ${at}`)}`,
  'a turn of room code was slow': ({ room_id: id, hook, ms }) =>
    `${id}: ${hook} took ${ms} ms, and the server did nothing else`,
  // They follow a turn that was cut off, or a machine that slept.
  'the process stood still': () => undefined,
  'the lease had expired and is renewed: every room is checked': () => undefined,
  'room file reloaded': ({ file = '' }) => `${pathOf(file)} reloaded`,
}

const playerOf = ({ sub, member_id: memberId }: Entry): string => sub ?? `player ${memberId}`
const playersOf = ({ players }: Entry): string => (players === 1 ? '1 player' : `${players} players`)
const pathOf = (file: string): string => relative('', file) || file

/** Fields that a developer does not need, or that the line shows in another form. */
const HIDDEN = new Set([
  ...['level', 'time', 'msg', 'err', 'file', 'reason'],
  ...['room_id', 'project_id', 'node_id', 'room_type', 'hook', 'message_type', 'ms', 'epoch'],
])

/** Position of a stack frame outside packages and Node: path, line. tsx adds a query to the address of a module. */
const FRAME = /(file:\/\/[^\s)]+?|\/[^\s():]+|[A-Z]:\\[^\s():]+)(?:\?[^\s:)]*)?:(\d+):\d+\)?$/

/** Returns the place where room code threw, such as ` (rooms/board.ts:23)`. */
function placeOf(stack = ''): string {
  for (const frame of stack.split('\n')) {
    const [, file, line] = FRAME.exec(frame.trim()) ?? []
    if (file === undefined || !/^\s+at /.test(frame) || frame.includes('node_modules') || isOwnFrame(frame))
      continue
    return ` (${pathOf(file.startsWith('file:') ? fileURLToPath(file) : file)}:${line})`
  }
  return ''
}

const thrown = ({ name = 'Error', message = '', stack }: NonNullable<Entry['err']> = {}): string =>
  `${name}: ${message}${placeOf(stack)}`

/**
 * Log of `roomful dev` on a terminal, for a game's developer: one line per player who joins or leaves, per failure of room code with its file
 * and line, per reload of a room file, per line of `ctx.log`, and per warning. Queues lines until `begin` has shown the addresses.
 */
export class TerminalLog {
  readonly #output: { write(text: string): unknown }
  #waiting: string[] | undefined = []

  constructor(output: { write(text: string): unknown }) {
    this.#output = output
  }

  /** Shows a text, then the queued lines. */
  begin(text: string): void {
    this.#output.write(text)
    this.#release()
  }

  /** Shows a log line, or queues it. */
  write(json: string): void {
    const entry = JSON.parse(json) as Entry
    const line = lineOf(entry)
    if (line !== undefined) {
      if (this.#waiting) this.#waiting.push(line)
      else this.#output.write(line)
    }
    // The process is about to end.
    if (entry.level === 'fatal') this.#release()
  }

  #release(): void {
    for (const line of this.#waiting ?? []) this.#output.write(line)
    this.#waiting = undefined
  }
}

/** Returns a line for the terminal. Undefined: the developer does not need it. */
function lineOf(entry: Entry): string | undefined {
  const text = textOf(entry)
  if (text === undefined) return undefined
  const { level, time } = entry
  const clock = new Date(time).toTimeString().slice(0, 8)
  const colour = { debug: 'green', info: 'green', warn: 'yellow', error: 'red', fatal: 'red' } as const
  const marked = entry.failed === undefined ? colour[level] : 'red'
  return `${styleText('dim', clock)} ${marked === 'green' ? text : styleText(marked, text)}\n`
}

function textOf(entry: Entry): string | undefined {
  const { level, msg, room_id: roomId, failed, err, file, reason } = entry
  const known = SHOWN[msg]
  if (known) return known(entry)
  // The line of the cut-off has said it.
  if (err?.name === 'TurnCut') return undefined
  if (failed !== undefined) return `${roomId}: ${failed} failed: ${thrown(err)}`
  if (file !== undefined && level !== 'debug') return `${pathOf(file)}: ${msg}`
  if (level === 'debug' || (level === 'info' && roomId === undefined)) return undefined
  const fields = Object.entries(entry).filter(([name]) => !HIDDEN.has(name))
  const details = [
    ...(reason === undefined ? [] : [reason.replaceAll(process.cwd() + sep, '')]),
    ...(err === undefined ? [] : [thrown(err)]),
    ...fields.map(([name, value]) => `${name} ${typeof value === 'string' ? value : JSON.stringify(value)}`),
  ]
  const colon = details.length === 0 ? '' : ': '
  return `${roomId === undefined ? '' : `${roomId}: `}${msg}${colon}${details.join(', ')}`
}
