import type { StandardSchemaV1 } from '@standard-schema/spec'
import { NO_DATA, type RoomDefinition } from '../../dataplane/room/definition.ts'
import { firstStateOf } from '../../dataplane/room/definition-check.ts'
import { jsonSchemaOf } from '../../dataplane/room/json-schema.ts'

/** Types of room types, for any language. They are read from the schemas, and from the first state if the state has no schema. */

/** Type of a value. `named` refers to a declaration. */
export type Shape =
  | { readonly kind: 'null' | 'boolean' | 'integer' | 'number' | 'string' }
  | { readonly kind: 'literal'; readonly value: string | number | boolean }
  | { readonly kind: 'list' | 'record'; readonly of: Shape }
  | { readonly kind: 'union'; readonly options: readonly Shape[] }
  | { readonly kind: 'named'; readonly name: string }
  /** Any value. `why`: why no more is known. */
  | { readonly kind: 'any'; readonly why: string }

/** Key of an object. */
export interface Field {
  readonly key: string
  readonly shape: Shape
  optional: boolean
  /** Value that the room takes if the key is absent. */
  readonly byDefault: unknown
}

/** A type with a name: an object with its fields, or another shape. */
export interface Declaration {
  readonly name: string
  /** Undefined: it is a part of another type. */
  readonly about: string | undefined
  readonly body: readonly Field[] | Shape
}

/** Types of a room type. The parts of a type are before it, except the type itself if it contains itself. */
export interface RoomShapes {
  readonly type: string
  readonly declarations: readonly Declaration[]
  /** What the definition does not tell. */
  readonly gaps: readonly string[]
}

/**
 * Returns the types that clients need: state, messages, replies, events, join options, and rows of lists. `states`: types of states by room
 * type, for room types without a schema `state`.
 */
export function shapesOf(
  rooms: readonly RoomDefinition[],
  states: ReadonlyMap<string, Described>,
): RoomShapes[] {
  const used = new Set<string>()
  return rooms.map((room) => shapesOfRoom(room, states.get(room.type), used))
}

const REMEDY = 'TypeScript 7 in the project, or a schema `state` in the room type, tells all of it.'

function shapesOfRoom(room: RoomDefinition, compiled: Described | undefined, used: Set<string>): RoomShapes {
  const { type, state, layers = {}, messages, events, options, listing, matches } = room
  const shapes = new Shapes(pascal(type).replace(/^\d/, 'Room$&'), used)
  const gaps: string[] = []
  if (options) shapes.declare('Options', 'Join options other than `key`.', options, 'input')
  // The client plays with a queue in its own way: only the ticket comes from the game.
  if (matches) return { type, declarations: shapes.declarations, gaps }
  const first = state || compiled ? undefined : firstStateOf(room.create as () => unknown)
  if (state) shapes.declare('State', 'The state, by the schema `state`.', state, 'input')
  else if (compiled) shapes.declareAs('State', 'The state, by its type in TypeScript.', compiled)
  else if (first === undefined)
    gaps.push(`State: unknown, because \`create\` needs options, or has failed. ${REMEDY}`)
  else shapes.declareAs('State', `The state as \`create\` returns it. ${REMEDY}`, describe(first))
  shapes.hide(Object.keys(layers))
  for (const [name, { data, reply }] of Object.entries(messages)) {
    const about = `Data of the message \`${name}\`.`
    if (data === NO_DATA) shapes.declareAs(`${name}-message`, about, { type: 'null' })
    else shapes.declare(`${name}-message`, about, data, 'input')
    if (reply) shapes.declare(`${name}-reply`, `Reply to the message \`${name}\`.`, reply, 'output')
  }
  if (!events) gaps.push('Events: none are declared, so they may have any name and any data.')
  for (const [name, data] of Object.entries(events ?? {}))
    shapes.declare(`${name}-event`, `Data of the event \`${name}\`.`, data, 'output')
  if (listing) shapes.declare('Row', 'Data of the room in lists.', listing.data, 'output')
  return { type, declarations: shapes.declarations, gaps }
}

/** The part of JSON Schema that tells types. */
export interface Described {
  readonly type?: string | readonly string[]
  readonly const?: unknown
  readonly enum?: readonly unknown[]
  readonly anyOf?: readonly Described[]
  readonly oneOf?: readonly Described[]
  readonly allOf?: readonly Described[]
  readonly properties?: { readonly [key: string]: Described }
  readonly required?: readonly string[]
  readonly additionalProperties?: boolean | Described
  readonly items?: boolean | Described | readonly Described[]
  readonly default?: unknown
  readonly $ref?: string
  readonly $defs?: { readonly [name: string]: Described }
  readonly definitions?: { readonly [name: string]: Described }
  /** Why there is no type. */
  readonly $comment?: string
}

/** What a schema describes: the values that it accepts, or those that it returns. */
type Side = 'input' | 'output'

/** The schema that is being read. */
interface Source {
  readonly root: Described
  readonly side: Side
  /** Names of the declarations, by `$ref`. */
  readonly names: Map<string, string>
}

/** The declarations of a room type. */
class Shapes {
  readonly declarations: Declaration[] = []
  readonly #prefix: string
  readonly #used: Set<string>

  /** `used`: names of all declarations, also of other room types. */
  constructor(prefix: string, used: Set<string>) {
    this.#prefix = prefix
    this.#used = used
  }

  /** Declares the type of what a schema accepts or returns. */
  declare(name: string, about: string, schema: StandardSchemaV1, side: Side): void {
    const unread = { $comment: `the schema of ${schema['~standard'].vendor} cannot be read` }
    this.declareAs(name, about, (jsonSchemaOf(schema, side) as Described | undefined) ?? unread, side)
  }

  /** Declares the type of a JSON Schema. */
  declareAs(name: string, about: string, root: Described, side: Side = 'output'): void {
    const free = this.#free(`${this.#prefix}${pascal(name)}`)
    const { $ref = '#' } = root
    this.#add(free, about, targetOf(root, $ref) ?? root, { root, side, names: new Map([[$ref, free]]) })
  }

  /** Makes the fields of the last type optional that patterns of `layers` hide from some members. */
  hide(patterns: readonly string[]): void {
    const body = this.declarations.at(-1)?.body
    if (body) for (const pattern of patterns) this.#hideIn(body, pattern.split('.'))
  }

  #hideIn(body: Declaration['body'], [key, ...rest]: readonly string[]): void {
    if (key === undefined) return
    if (!('kind' in body)) {
      for (const field of body.filter((one) => key === '*' || key === one.key)) {
        field.optional ||= rest.length === 0
        this.#hideIn(field.shape, rest)
      }
    } else if (body.kind === 'named') this.#hideIn(this.#bodyOf(body.name), [key, ...rest])
    // Any key of a record may be absent.
    else if (body.kind === 'record') this.#hideIn(body.of, rest)
    else if (body.kind === 'union') for (const option of body.options) this.#hideIn(option, [key, ...rest])
  }

  #bodyOf(name: string): Declaration['body'] {
    return this.declarations.find((one) => one.name === name)!.body
  }

  #add(name: string, about: string | undefined, schema: Described, source: Source): void {
    const body = this.#fieldsOf(name, schema, source) ?? this.#shapeOf(name, schema, source)
    this.declarations.push({ name, about, body })
  }

  /** Undefined: the schema is not of an object with known keys. */
  #fieldsOf(name: string, schema: Described, source: Source): Field[] | undefined {
    const parts = schema.allOf?.map((part) => this.#fieldsOf(name, part, source))
    if (parts) return parts.includes(undefined) ? undefined : parts.flatMap((fields) => fields!)
    const { properties, required = [] } = schema
    if (!properties) return undefined
    return Object.entries(properties).map(([key, part]) => {
      const absent = !required.includes(key) && !(source.side === 'output' && part.default !== undefined)
      const shape = this.#shapeOf(`${name}${pascal(key)}`, part, source)
      return { key, shape, optional: absent, byDefault: absent ? part.default : undefined }
    })
  }

  /** `name`: of the declaration, if the shape needs one. */
  #shapeOf(name: string, schema: Described, source: Source): Shape {
    const { type, enum: values, $ref, properties, allOf, items, additionalProperties: more } = schema
    if ($ref !== undefined) return this.#refersTo(name, $ref, source)
    if ('const' in schema) return literal(schema.const)
    if (values) return unionOf(values.map(literal))
    const options =
      schema.anyOf ?? schema.oneOf ?? (Array.isArray(type) ? type.map((type) => ({ type })) : undefined)
    if (options) return unionOf(options.map((option) => this.#shapeOf(`${name}Option`, option, source)))
    if (properties || allOf) {
      const free = this.#free(name)
      const fields = this.#fieldsOf(free, schema, source)
      if (!fields) return any('the schema is an intersection of other types than objects')
      this.declarations.push({ name: free, about: undefined, body: fields })
      return { kind: 'named', name: free }
    }
    if (type === 'array') {
      const all = [items].flat().filter((item) => typeof item === 'object')
      return { kind: 'list', of: unionOf(all.map((item) => this.#shapeOf(`${name}Item`, item, source))) }
    }
    if (type === 'object' && typeof more === 'object')
      return { kind: 'record', of: this.#shapeOf(`${name}Value`, more, source) }
    if (type === 'null' || type === 'boolean' || type === 'integer' || type === 'number' || type === 'string')
      return { kind: type }
    return any(schema.$comment)
  }

  #refersTo(name: string, ref: string, source: Source): Shape {
    const { root, names } = source
    const known = names.get(ref)
    if (known !== undefined) return { kind: 'named', name: known }
    const target = targetOf(root, ref)
    if (!target) return any()
    const free = this.#free(name)
    names.set(ref, free)
    this.#add(free, undefined, target, source)
    return { kind: 'named', name: free }
  }

  /** Returns the name, with a number if another declaration has it. */
  #free(name: string): string {
    let free = name
    for (let n = 2; this.#used.has(free); n++) free = `${name}${n}`
    this.#used.add(free)
    return free
  }
}

/** Returns the part of a schema that a `$ref` names. */
function targetOf({ $defs, definitions }: Described, ref: string): Described | undefined {
  const name = /^#\/(?:\$defs|definitions)\/(.+)$/.exec(ref)?.[1]
  return name === undefined ? undefined : ($defs ?? definitions)?.[name]
}

const any = (why = 'the schema does not tell'): Shape => ({ kind: 'any', why })

function literal(value: unknown): Shape {
  if (value === null) return { kind: 'null' }
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
    ? { kind: 'literal', value }
    : any()
}

/** Returns the union, without repetitions. With `any`, it is `any`. */
function unionOf(shapes: readonly Shape[]): Shape {
  const flat = shapes.flatMap((shape) => (shape.kind === 'union' ? shape.options : [shape]))
  const options = [...new Map(flat.map((shape) => [JSON.stringify(shape), shape])).values()]
  const [first = any()] = options
  return (
    options.find(({ kind }) => kind === 'any') ?? (options.length === 1 ? first : { kind: 'union', options })
  )
}

/** Returns the schema of a value of the first state. Empty and null parts do not tell what they will contain. */
function describe(value: unknown): Described {
  if (Array.isArray(value))
    return value.length === 0
      ? { type: 'array', items: { $comment: 'an empty list in the first state' } }
      : { type: 'array', items: { anyOf: value.map(describe) } }
  if (typeof value !== 'object') return { type: typeof value }
  if (value === null) return { $comment: 'null in the first state' }
  const entries = Object.entries(value)
  if (entries.length === 0) return { $comment: 'an empty object in the first state' }
  return {
    type: 'object',
    properties: Object.fromEntries(entries.map(([key, part]) => [key, describe(part)])),
    required: Object.keys(value),
  }
}

/** Returns a name for a type: letters and digits, each word with a capital letter. */
function pascal(text: string): string {
  const words = text.split(/[^A-Za-z0-9]+/).filter(Boolean)
  const name = words.map((word) => word[0]!.toUpperCase() + word.slice(1)).join('')
  return name || 'Key'
}

/** Returns what the type of a value does not say: why it is any value, and the default of a field. */
export function noteOn(shape: Shape, field?: Field): string | undefined {
  if (field && field.byDefault !== undefined) return `default ${JSON.stringify(field.byDefault)}`
  if (shape.kind === 'any') return shape.why
  if (shape.kind === 'list' || shape.kind === 'record') return noteOn(shape.of)
  return undefined
}
