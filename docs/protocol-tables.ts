import type { Json } from '../shared/json.ts'
import { type Either, elementsOf, type Field, type Fields, type Table } from '../shared/protocol/fields.ts'
import {
  CLIENT_MESSAGES,
  ROOM_OPCODE,
  SERVER_MESSAGES,
  STREAM_HEAD,
  STREAM_MESSAGES,
} from '../shared/protocol/messages.ts'
import { Checksum } from '../shared/sync/checksum.ts'

/** Returns the Markdown of a code word, and of a table. */
export const code = (text: string | number): string => `\`${text}\``

export const table = (header: readonly string[], rows: readonly (readonly string[])[]): string =>
  [
    `| ${header.join(' | ')} |`,
    `|${'---|'.repeat(header.length)}`,
    ...rows.map((cells) => `| ${cells.map((cell) => cell.replaceAll(/(?<!\\)\|/g, '\\|')).join(' | ')} |`),
  ].join('\n')

/** Returns the tables of docs/protocol.md. */

const byOpcode = (messages: Table) => Object.entries(messages).sort(([, a], [, b]) => a.opcode - b.opcode)
const SERVER = { ...SERVER_MESSAGES, ...STREAM_MESSAGES }

/** Returns the JSON form of a field, such as `rooms?: [{room_id, resumed}]`. */
function inJson([name, field]: [string, Field], absent = ''): string {
  if (field.kind === 'optional' || field.kind === 'nil') return inJson([name, field.of], '?')
  if (field.kind === 'options') return `${name}?`
  const inner = shapeInJson(field)
  return `${name}${absent}${inner === '' ? '' : `: ${inner}`}`
}

/** Returns the fields of an object, or of a list of objects. Empty for other fields. */
function shapeInJson(field: Field): string {
  if (field.kind === 'list') return `[${shapeInJson(field.of) || field.of.kind}]`
  if (field.kind !== 'record') return ''
  const entries = Object.entries(field.fields).map((entry) => inJson(entry as [string, Field]))
  return `{${entries.join(', ')}}`
}

/** Returns the JSON fields of a message. If it has one of two fields, returns one list for each. */
function variantsInJson(fields: Fields): string[] {
  let variants: string[][] = [[]]
  for (const [name, field] of Object.entries(fields)) {
    const ways: [string, Field][] =
      field.kind === 'either'
        ? [
            [field.text.name, field.text.field],
            [field.record.name, field.record.field],
          ]
        : [[name, field]]
    variants = ways.flatMap((way) => variants.map((before) => [...before, code(inJson(way))]))
  }
  return variants.map((names) => names.join(', '))
}

/** Returns the messages and their JSON fields. The handwritten meanings are kept from the last cell of the current row. */
function messageTable(messages: Table, before: string): string {
  const meanings = new Map<string, string[]>()
  for (const [, t, meaning] of before.matchAll(/^\| `(.+?)` \| .*? \| (.*?) ?\|$/gm))
    meanings.set(t!, [...(meanings.get(t!) ?? []), meaning!])
  const rows = byOpcode(messages).flatMap(([t, { fields }]) =>
    variantsInJson(fields).map((names, at) => [code(t), names, meanings.get(t)?.[at] ?? '']),
  )
  return table(['`t`', 'fields', 'meaning'], rows)
}

/** Returns the MessagePack form of a field, such as `[[room_id, resumed], …]` or nil. */
function inMsgpack([name, field]: [string, Field | Either]): string {
  switch (field.kind) {
    case 'either':
      return `${inMsgpack([field.text.name, field.text.field])} or ${inMsgpack([field.record.name, field.record.field])}`
    case 'optional':
      return inMsgpack([name, field.of])
    case 'nil':
      return `${inMsgpack([name, field.of])} or nil`
    case 'choice':
      return `${code(name)}: ${field.names.map((word, at) => `${at} ${word}`).join(', ')}`
    default:
      return code(shapeInMsgpack(name, field))
  }
}

function shapeInMsgpack(name: string, field: Field | Either): string {
  if (field.kind === 'list') return `[${shapeInMsgpack(name, field.of)}, …]`
  if (field.kind !== 'record') return name
  return `[${Object.entries(field.fields)
    .map(([inner, of]) => shapeInMsgpack(inner, of.kind === 'optional' || of.kind === 'nil' ? of.of : of))
    .join(', ')}]`
}

/** Frames of the state stream have the announced keys after their head, and patches have a change instead of operations. */
function streamInMsgpack(fields: Fields): string[] {
  const head = elementsOf(STREAM_HEAD).map(([name]) => code(name))
  const rest = elementsOf(fields)
    .slice(head.length)
    .filter(([name]) => name !== 'layers')
    .map(inMsgpack)
  const part = code('[[number, name, checksum, keys, change], …]')
  return [...head, ...('ops' in fields ? ['`keys` or nil', '`change` or nil'] : ['`keys`', ...rest]), part]
}

/** Returns the messages by opcode, with their MessagePack elements. */
function opcodeList(): string {
  const client = byOpcode(CLIENT_MESSAGES).map(([t, { opcode, fields }]) => ({
    opcode,
    t: t in SERVER ? `${code(t)} (client)` : code(t),
    elements: elementsOf(fields).map(inMsgpack),
  }))
  const server = byOpcode(SERVER).map(([t, { opcode, fields }]) => ({
    opcode,
    t: code(t),
    elements: t in STREAM_MESSAGES ? streamInMsgpack(fields) : elementsOf(fields).map(inMsgpack),
  }))
  return [...client, ...server, { opcode: ROOM_OPCODE, t: 'the room', elements: ['`room_id`'] }]
    .sort((a, b) => a.opcode - b.opcode)
    .map(
      ({ opcode, t, elements }) => `- ${opcode} ${t}${elements.length > 0 ? ': ' : ''}${elements.join(', ')}`,
    )
    .join('\n')
}

const EXAMPLE_STATES: readonly Json[] = [null, {}, { a: 1, b: 2 }]

/** Returns the text between the marks of each name. */
export const PROTOCOL_PARTS = {
  'messages from the client': (before: string) => messageTable(CLIENT_MESSAGES, before),
  'messages from the server': (before: string) => messageTable(SERVER, before),
  opcodes: opcodeList,
  checksums: () =>
    table(
      ['state', 'checksum'],
      EXAMPLE_STATES.map((state) => [code(JSON.stringify(state)), String(new Checksum().of(state))]),
    ),
}
