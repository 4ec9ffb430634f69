import type { Field, Fields, Table } from '../shared/protocol/fields.ts'
import { CLIENT_MESSAGES, SERVER_MESSAGES, STREAM_MESSAGES } from '../shared/protocol/messages.ts'

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

/** Returns a field, such as `rooms?: [{room_id, resumed}]`. In parentheses: MessagePack omits it. */
function inJson([name, field]: [string, Field], absent = ''): string {
  if ('address' in field) return `(${name})`
  if (field.kind === 'optional' || field.kind === 'nil') return inJson([name, field.of], '?')
  if (field.kind === 'options') return `${name}?`
  const inner = shapeInJson(field)
  return `${name}${absent}${inner === '' ? '' : `: ${inner}`}`
}

/** Returns the fields of an object or of a list of objects, or the words of a choice. Empty for other fields. */
function shapeInJson(field: Field): string {
  if (field.kind === 'list') return `[${shapeInJson(field.of) || field.of.kind}]`
  if (field.kind === 'choice') return field.names.join('/')
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

/** Returns the messages, with their opcodes and fields. The handwritten meanings are kept from the last cell of the current row. */
function messageTable(messages: Table, before: string): string {
  const meanings = new Map<string, string[]>()
  for (const [, t, meaning] of before.matchAll(/^\| (?:\d+ )?`(.+?)` \| .*? \| (.*?) ?\|$/gm))
    meanings.set(t!, [...(meanings.get(t!) ?? []), meaning!])
  const rows = byOpcode(messages).flatMap(([t, { opcode, fields }]) =>
    variantsInJson(fields).map((names, at) => [`${opcode} ${code(t)}`, names, meanings.get(t)?.[at] ?? '']),
  )
  return table(['`t`', 'fields', 'meaning'], rows)
}

/** Returns the text between the marks of each name. */
export const PROTOCOL_PARTS = {
  'messages from the client': (before: string) => messageTable(CLIENT_MESSAGES, before),
  'messages from the server': (before: string) => messageTable(SERVER, before),
}
