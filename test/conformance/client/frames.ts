import { decode } from '@msgpack/msgpack'
import { DECIMALS, list, record } from '../codecs.ts'
import { type Codec, ProtocolFault } from '../messages.ts'

/** A room in a resume. */
export interface SaidRoom {
  readonly room_id: string
  readonly member_id: string
  readonly epoch: number
  readonly seq: number
  readonly settled: number
}

interface SaidFields {
  hello: {
    readonly project_id: string
    readonly token?: string
    readonly resume?: {
      readonly session_id: string
      readonly resume_token: string
      readonly rooms: readonly SaidRoom[]
    }
    readonly features?: readonly string[]
  }
  join: {
    readonly request_id: number
    readonly room_type: string
    readonly options?: object
    readonly rejoin?: boolean
    readonly create?: boolean
  }
  leave: { readonly request_id: number; readonly room_id: string }
  message: {
    readonly room_id: string
    readonly type: string
    readonly data: unknown
    readonly ref?: number
    readonly settled?: number
  }
  'state.resync': { readonly room_id: string; readonly reason: 'sequence' | 'checksum' }
  ping: { readonly at: number }
  token: { readonly token: string }
  move: Record<never, never>
  goodbye: Record<never, never>
  rooms: {
    readonly request_id: number
    readonly room_type: string
    readonly query?: unknown
    readonly watch?: boolean
  }
  'rooms.end': { readonly request_id: number }
  find: { readonly request_id: number; readonly code?: string; readonly room?: unknown }
}

type SaidName = keyof SaidFields
/** A message of the client under test, by the tables of docs/protocol.md. */
export type Said = { [T in SaidName]: { readonly t: T } & SaidFields[T] }[SaidName]
export type SaidAs<T extends SaidName> = Extract<Said, { t: T }>

/** Returns the field of a message for the value on the wire. Throws ProtocolFault. */
type Reader = (value: unknown) => unknown

interface Field {
  readonly name: string
  readonly json: Reader
  readonly msgpack: Reader
  readonly optional?: true
}

const wrong = (expected: string, value: unknown): never => {
  throw new ProtocolFault(`${expected} was expected, not ${String(JSON.stringify(value)).slice(0, 100)}`)
}

const text =
  (most: number): Reader =>
  (value) =>
    typeof value === 'string' && value.length >= 1 && value.length <= most
      ? value
      : wrong(`a text of 1 to ${most} characters`, value)
const integer =
  (least: number): Reader =>
  (value) =>
    Number.isSafeInteger(value) && (value as number) >= least
      ? value
      : wrong(`an integer from ${least}`, value)
const number: Reader = (value) => (Number.isFinite(value) ? value : wrong('a number', value))
const flag: Reader = (value) => (typeof value === 'boolean' ? value : wrong('true or false', value))
const anything: Reader = (value) => (value === undefined ? wrong('a value', value) : value)

const both = (name: string, reader: Reader): Field => ({ name, json: reader, msgpack: reader })
const optional = (field: Field): Field => ({ ...field, optional: true })

const roomId = text(193)
const REASONS = ['sequence', 'checksum']

const ROOM: readonly Field[] = [
  both('room_id', roomId),
  both('member_id', text(128)),
  both('epoch', integer(0)),
  both('seq', integer(0)),
  both('settled', integer(0)),
]
const features = optional(both('features', (value) => list(value).map(text(32))))

/** Opcode and fields of each message, in the order of the elements. */
const SHAPES: Readonly<Record<SaidName, { opcode: number; fields: readonly Field[] }>> = {
  hello: { opcode: 0, fields: [] },
  join: {
    opcode: 1,
    fields: [
      both('request_id', integer(1)),
      both('room_type', text(64)),
      optional(both('options', record)),
      optional(both('rejoin', flag)),
      optional(both('create', flag)),
    ],
  },
  leave: { opcode: 2, fields: [both('request_id', integer(1)), both('room_id', roomId)] },
  message: {
    opcode: 3,
    fields: [
      both('room_id', roomId),
      both('type', text(64)),
      both('data', anything),
      optional(both('ref', integer(1))),
      optional(both('settled', integer(0))),
    ],
  },
  'state.resync': {
    opcode: 4,
    fields: [
      both('room_id', roomId),
      {
        name: 'reason',
        json: (value) => (REASONS.includes(value as string) ? value : wrong(REASONS.join(' or '), value)),
        msgpack: (value) => REASONS[value as number] ?? wrong('0 or 1', value),
      },
    ],
  },
  ping: { opcode: 5, fields: [both('at', number)] },
  token: { opcode: 6, fields: [both('token', text(8192))] },
  move: { opcode: 7, fields: [] },
  goodbye: { opcode: 8, fields: [] },
  rooms: {
    opcode: 9,
    fields: [
      both('request_id', integer(1)),
      both('room_type', text(64)),
      optional(both('query', anything)),
      optional(both('watch', flag)),
    ],
  },
  'rooms.end': { opcode: 10, fields: [both('request_id', integer(1))] },
  find: {
    opcode: 11,
    fields: [
      both('request_id', integer(1)),
      // In MessagePack, a room is a list in the place of the code.
      optional({
        name: 'code',
        json: text(32),
        msgpack: (value) => (Array.isArray(value) ? undefined : text(32)(value)),
      }),
      optional(both('room', record)),
    ],
  },
}
const NAMES = new Map(Object.entries(SHAPES).map(([t, { opcode }]) => [opcode, t as SaidName]))

function readFields(
  fields: readonly Field[],
  codec: Codec,
  value: (name: string, index: number) => unknown,
): Record<string, unknown> {
  const read: Record<string, unknown> = {}
  for (const [index, field] of fields.entries()) {
    const raw = value(field.name, index)
    if (field.optional && (raw === undefined || raw === null)) continue
    try {
      read[field.name] = field[codec](raw)
    } catch (problem) {
      throw new ProtocolFault(`${field.name}: ${(problem as Error).message}`)
    }
  }
  return read
}

const fromObject = (fields: readonly Field[], object: Record<string, unknown>) =>
  readFields(fields, 'json', (name) => object[name])
const fromElements = (fields: readonly Field[], elements: readonly unknown[]) =>
  readFields(fields, 'msgpack', (_, index) => elements[index])

const PROJECT = [both('project_id', text(128))]
const TOKEN = both('token', text(8192))
const RIGHT = [both('session_id', text(128)), both('resume_token', text(8192))]

function helloOfObject(object: Record<string, unknown>): object {
  const head = fromObject([...PROJECT, features], object)
  if (object.resume == null) return { ...head, ...fromObject([TOKEN], object) }
  if (object.token != null) throw new ProtocolFault('a hello has a token or a resume, not both')
  const right = record(object.resume)
  const rooms = list(right.rooms).map((room) => fromObject(ROOM, record(room)))
  return { ...head, resume: { ...fromObject(RIGHT, right), rooms } }
}

function helloOfElements([project, right, named]: readonly unknown[]): object {
  const head = { ...fromElements(PROJECT, [project]), ...fromElements([features], [named]) }
  if (!Array.isArray(right)) return { ...head, ...fromElements([TOKEN], [right]) }
  const rooms = list(right[2]).map((room) => fromElements(ROOM, list(room)))
  return { ...head, resume: { ...fromElements(RIGHT, right), rooms } }
}

function checked(t: SaidName, fields: object): Said {
  const said = { t, ...fields } as Said
  if (said.t === 'message' && said.ref !== undefined && said.settled === undefined)
    throw new ProtocolFault('a message with a ref has settled')
  return said
}

function ofElements(value: unknown): Said {
  const [opcode, ...elements] = list(value)
  const t = NAMES.get(opcode as number)
  if (t === undefined) throw new ProtocolFault(`no message of a client has the opcode ${String(opcode)}`)
  return checked(t, t === 'hello' ? helloOfElements(elements) : fromElements(SHAPES[t].fields, elements))
}

/** Reads a frame of a client. Throws ProtocolFault. */
export function readClientFrame(codec: Codec, frame: string | Uint8Array): Said {
  if (codec === 'msgpack') {
    if (typeof frame === 'string') throw new ProtocolFault('a text frame in roomful.v1.msgpack')
    return ofElements(decode(frame, { extensionCodec: DECIMALS }))
  }
  if (typeof frame !== 'string') throw new ProtocolFault('a binary frame in roomful.v1.json')
  const object = record(JSON.parse(frame))
  const t = object.t as SaidName
  if (typeof t !== 'string' || !Object.hasOwn(SHAPES, t))
    throw new ProtocolFault(`no message of a client is called ${JSON.stringify(t)}`)
  return checked(t, t === 'hello' ? helloOfObject(object) : fromObject(SHAPES[t].fields, object))
}
