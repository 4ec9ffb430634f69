import { type Declaration, noteOn, type RoomShapes, type Shape } from './shapes.ts'

/** Types of rooms as annotations for the Lua language server. */

const WORDS = {
  any: 'any',
  null: 'roomful.Null',
  boolean: 'boolean',
  integer: 'integer',
  number: 'number',
  string: 'string',
}

/** Returns the file. `header`: text of its first comment. */
export const luaTypes = (rooms: readonly RoomShapes[], header: string): string =>
  `---@meta\n-- ${header}\n\n---JSON null in a table: the value \`roomful.null\`.\n---@class roomful.Null: userdata\n${rooms.map(section).join('')}`

function section({ type, gaps, declarations }: RoomShapes): string {
  const comments = [`Room type ${type}`, ...gaps].map((text) => `-- ${text}\n`)
  return `\n${comments.join('')}${declarations.map((one) => `\n${declaration(one)}`).join('')}`
}

function declaration({ name, about, body }: Declaration): string {
  const title = about === undefined ? '' : `---${about}\n`
  if ('kind' in body) return `${title}---@alias ${name} ${wholeHint(body)}${comment(noteOn(body))}\n`
  const fields = body.map((field) => {
    const { key, shape, optional } = field
    const written = /^[A-Za-z_][A-Za-z0-9_]*$/.test(key) ? key : `[${JSON.stringify(key)}]`
    return `---@field ${written}${optional ? '?' : ''} ${hint(shape)}${comment(noteOn(shape, field))}\n`
  })
  return `${title}---@class ${name}\n${fields.join('')}`
}

/** A whole message can be nil. */
function wholeHint(shape: Shape): string {
  if (shape.kind === 'union') return shape.options.map(wholeHint).join('|')
  return shape.kind === 'null' ? 'nil' : hint(shape)
}

const comment = (text: string | undefined): string => (text === undefined ? '' : ` # ${text}`)

function hint(shape: Shape): string {
  switch (shape.kind) {
    case 'list':
      return `${shape.of.kind === 'union' ? `(${hint(shape.of)})` : hint(shape.of)}[]`
    case 'record':
      return `table<string, ${hint(shape.of)}>`
    case 'named':
      return shape.name
    case 'union':
      return shape.options.map(hint).join('|')
    case 'literal':
      return literal(shape.value)
    default:
      return WORDS[shape.kind]
  }
}

/** A type cannot be a number with a fraction. */
const literal = (value: string | number | boolean): string =>
  typeof value === 'number' && !Number.isInteger(value) ? 'number' : JSON.stringify(value)
