import { type Declaration, noteOn, type RoomShapes, type Shape } from './shapes.ts'

/** Types of rooms as a module for Python. */

const NAMES = ['Any', 'Literal', 'NotRequired', 'TypeAlias', 'TypedDict']
const WORDS = { any: 'Any', null: 'None', boolean: 'bool', integer: 'int', number: 'float', string: 'str' }
const KEYWORDS = new Set(
  (
    'False None True and as assert async await break class continue def del elif else except finally for from global if import in is ' +
    'lambda nonlocal not or pass raise return try while with yield'
  ).split(' '),
)

/** Returns the module. `header`: text of its first comment. */
export function pythonTypes(rooms: readonly RoomShapes[], header: string): string {
  const sections = rooms.map(({ type, gaps, declarations }) => {
    const comments = [`Room type ${type}`, ...gaps].map((text) => `# ${text}\n`)
    return `${comments.join('')}${declarations.map((one) => `\n\n${declaration(one)}`).join('')}`
  })
  const used = NAMES.filter((name) => sections.some((text) => new RegExp(`\\b${name}\\b`).test(text)))
  const imports = ['from __future__ import annotations', `from typing import ${used.join(', ')}`]
  return `# ${header}\n\n${imports.slice(0, used.length > 0 ? 2 : 1).join('\n\n')}\n\n\n${sections.join('\n\n')}`
}

function declaration({ name, about, body }: Declaration): string {
  const title = about === undefined ? '' : `# ${about}\n`
  if ('kind' in body)
    return `${title}${name}: TypeAlias = ${JSON.stringify(hint(body))}${comment(noteOn(body))}\n`
  const fields = body.map((field) => {
    const value = hint(field.shape)
    return {
      ...field,
      hint: field.optional ? `NotRequired[${value}]` : value,
      note: comment(noteOn(field.shape, field)),
    }
  })
  if (fields.every(({ key }) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(key) && !KEYWORDS.has(key))) {
    const lines = fields.map(({ key, hint, note }) => `    ${key}: ${hint}${note}\n`)
    return `${title}class ${name}(TypedDict):\n${lines.join('') || '    pass\n'}`
  }
  const lines = fields.map(
    ({ key, hint, note }) => `    ${JSON.stringify(key)}: ${JSON.stringify(hint)},${note}\n`,
  )
  return `${title}${name} = TypedDict("${name}", {\n${lines.join('')}})\n`
}

const comment = (text: string | undefined): string => (text === undefined ? '' : `  # ${text}`)

function hint(shape: Shape): string {
  switch (shape.kind) {
    case 'list':
      return `list[${hint(shape.of)}]`
    case 'record':
      return `dict[str, ${hint(shape.of)}]`
    case 'named':
      return shape.name
    case 'union': {
      const literals = shape.options.filter(isLiteral).map(({ value }) => literal(value))
      const others = shape.options.filter((option) => !isLiteral(option)).map(hint)
      return [...(literals.length > 0 ? [`Literal[${literals.join(', ')}]`] : []), ...others].join(' | ')
    }
    case 'literal':
      return isLiteral(shape) ? `Literal[${literal(shape.value)}]` : 'float'
    default:
      return WORDS[shape.kind]
  }
}

/** `Literal` accepts no numbers with a fraction. */
const isLiteral = (shape: Shape): shape is Shape & { kind: 'literal' } =>
  shape.kind === 'literal' && (typeof shape.value !== 'number' || Number.isInteger(shape.value))

const literal = (value: string | number | boolean): string =>
  typeof value === 'boolean' ? (value ? 'True' : 'False') : JSON.stringify(value)
