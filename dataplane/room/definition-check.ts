import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { JsonSchema } from '@valibot/to-json-schema'
import { closest, distance } from 'fastest-levenshtein'
import { jsonSchemaOf } from './json-schema.ts'
import { type LayerRules, problemsOfLayers, problemsOfPatterns } from './layer-rules.ts'
import { Boundary } from './room-code.ts'

/** Error that `defineRoom` throws for a definition with mistakes. The message lists each mistake with its value and the correct form. */
export class RoomDefinitionError extends Error {
  /** Always `RoomDefinitionError`, also from another copy of the package. */
  override readonly name = 'RoomDefinitionError'
}

const NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/
const MAX_RATE = 240

/** Rule of a field: a test, and the valid values in words. */
type Rule = readonly [holds: (value: unknown) => boolean, right: string]

const rateFrom = (value: unknown, least: number): boolean =>
  isObject(value) && isNumber(value.rate, least, MAX_RATE)
export const A_SCHEMA: Rule = [
  isSchema,
  'a validator that follows Standard Schema, such as valibot’s v.object({ … })',
]
const A_FUNCTION: Rule = [(value) => typeof value === 'function', 'a function']
/** Returns the rule of a function that is not async. `right`: end of the valid values in words. */
export const synchronous = (right: string): Rule => [
  (value) => typeof value === 'function' && !isAsync(value),
  `a function, not an async one${right}`,
]
const A_HANDLER = synchronous(': give slow work to ctx.task')
const A_MIGRATION = synchronous(', that changes the state or returns another')
const A_LISTING = synchronous(', that returns the data of the row, or null')
const A_FLAG: Rule = [(value) => typeof value === 'boolean', 'true or false']
const ONLY_TRUE: Rule = [(value) => value === true, 'true, or left out']
const ANY: Rule = [() => true, 'anything']
const BY_NAME: Rule = [isObject, 'an object by name']

export const A_TYPE: Rule = [
  (value) => typeof value === 'string' && /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(value),
  '1–64 letters, digits, _ or -, beginning with a letter or digit',
]
export const SECONDS: Rule = [(value) => isNumber(value, 0, 86_400), '0 to 86400']

/** Fields of an object by name, each with its rule. A name that ends with `?` may be left out. */
export type Shape = Readonly<Record<string, Rule>>

const SAVE: Shape = { everySeconds: [(value) => isNumber(value, 1, 86_400), '1 to 86400'], to: A_FUNCTION }
const LISTING: Shape = { data: A_SCHEMA, of: A_LISTING, 'sleeping?': A_FLAG }
const MESSAGE: Shape = {
  'data?': A_SCHEMA,
  'reply?': A_SCHEMA,
  'rate?': ANY,
  'spectators?': ONLY_TRUE,
  'handle?': A_HANDLER,
}
/** Maximum number of spectators whom all members see: every join and leave of them goes to everyone. */
const MAX_VISIBLE = 50
const SPECTATORS: Shape = {
  max: [(value) => Number.isSafeInteger(value) && isNumber(value, 1), 'a whole number, at least 1'],
  'onJoin?': A_HANDLER,
  'onLeave?': A_HANDLER,
  'visible?': A_FLAG,
}
const RATE: Shape = {
  perSecond: [(value) => isNumber(value, Number.MIN_VALUE), 'a number above 0'],
  'burst?': [(value) => isNumber(value, 1), 'a number of at least 1'],
}
const CALL: Shape = { 'data?': A_SCHEMA, 'reply?': A_SCHEMA, handle: A_HANDLER }
const ENDED_TASK: Shape = { result: A_SCHEMA, handle: A_HANDLER }
const TASK: Shape = { ...ENDED_TASK, 'retry?': ANY, 'data?': ANY, 'run?': ANY }
const RETRIED_TASK: Shape = { ...ENDED_TASK, retry: ONLY_TRUE, data: A_SCHEMA, run: A_FUNCTION }
const TIMER: Shape = { data: A_SCHEMA, handle: A_HANDLER }

/** Fields of a room except its hooks. */
const FIELDS: Shape = {
  type: A_TYPE,
  'maxPlayers?': [(value) => Number.isSafeInteger(value) && isNumber(value, 1), 'a whole number, at least 1'],
  'spectators?': [isObject, '{ max, onJoin?, onLeave?, visible? }'],
  'sameSub?': [
    (value) => value === 'allow' || value === 'replace' || value === 'refuse',
    'allow, replace or refuse',
  ],
  'options?': A_SCHEMA,
  'messages?': BY_NAME,
  'calls?': BY_NAME,
  'events?': BY_NAME,
  'tasks?': BY_NAME,
  'layers?': [isObject, 'an object by patterns of paths'],
  'listing?': [isObject, '{ data, of, sleeping? }'],
  'codes?': A_FLAG,
  'timers?': BY_NAME,
  'notices?': BY_NAME,
  'state?': A_SCHEMA,
  'sync?': [(value) => rateFrom(value, 0), `{ rate } with 0 (immediately) to ${MAX_RATE} flushes per second`],
  'tick?': [
    (value) => rateFrom(value, Number.MIN_VALUE),
    `{ rate } with more than 0 and at most ${MAX_RATE} calls per second`,
  ],
  'durability?': [
    (value) => value === 'journal' || value === 'snapshot' || value === 'none',
    'journal, snapshot, none',
  ],
  'idleSeconds?': SECONDS,
  'sleepDays?': [(value) => isNumber(value, 0.01, 3650), '0.01 to 3650'],
  'onIdle?': [(value) => value === 'dispose' || value === 'sleep', 'dispose or sleep'],
  'reconnectSeconds?': SECONDS,
  create: synchronous(', that returns the first state'),
  'load?': A_FUNCTION,
  'save?': [isObject, '{ everySeconds, to }'],
  'version?': [(value) => Number.isSafeInteger(value) && isNumber(value, 1), 'a whole number, at least 1'],
  'migrate?': [isObject, 'an object of functions by the version that they begin with'],
  'admit?': A_FUNCTION,
}
const HOOKS = [
  'onJoin',
  'onMessage',
  'on_message',
  'onDisconnect',
  'onReconnect',
  'onLeave',
  'onTick',
  'onDispose',
]

/**
 * Checks the fields of an object by their rules, and that there are no others: `max_players: write maxPlayers`. `what`: the object.
 * `prefix`: path of its fields in the definition.
 */
function checkFields(value: Fields, shape: Shape, what: string, prefix: string, check: Check): void {
  const names = Object.keys(shape).map((name) => name.replace('?', ''))
  for (const field of Object.keys(value)) {
    const camelCase = field.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase())
    const nearest = closest(camelCase, names)
    check(names.includes(field), () =>
      // Typing errors are rare in the first letter: players does not stand for layers.
      distance(camelCase, nearest) <= 2 && camelCase[0] === nearest[0]
        ? `${field}: write ${nearest}`
        : `${field} is no field of ${what}; there are ${names.join(', ')}`,
    )
  }
  for (const [i, [key, rule]] of Object.entries(shape).entries()) {
    const name = names[i]!
    if (value[name] !== undefined || key === name) checkRule(prefix + name, value[name], rule, check)
  }
}

/** As `checkFields`, for a part of a definition. What is not an object has no fields. */
const checkPart = (part: unknown, shape: Shape, what: string, check: Check): void =>
  checkFields(isObject(part) ? part : {}, shape, what, `${what}.`, check)

/**
 * Throws RoomDefinitionError if `spec` is not valid for `defineRoom`. Checks the rules of its types, and those that types cannot express.
 */
export const checkSpec = (spec: unknown): void =>
  checkDefinition(
    spec,
    {
      call: 'defineRoom',
      what: 'a room',
      name: 'room type',
      fields: { ...FIELDS, ...Object.fromEntries(HOOKS.map((hook) => [`${hook}?`, A_FUNCTION])) },
    },
    checkRoom,
  )

/** A kind of definition. */
interface DefinitionKind {
  /** Function of the author, such as `defineRoom`. */
  readonly call: string
  /** Owner of the fields, for errors: `a room`. */
  readonly what: string
  /** Name of the definition, for errors: `room type`. */
  readonly name: string
  readonly fields: Shape
}

/** Throws RoomDefinitionError unless `spec` has valid fields. `more`: adds other problems to the list. */
export function checkDefinition(
  spec: unknown,
  { call, what, name, fields }: DefinitionKind,
  more?: (spec: Fields, check: Check, problems: string[]) => void,
): void {
  if (!isObject(spec)) throw new RoomDefinitionError(`${call} needs an object, got ${show(spec)}`)
  const problems: string[] = []
  const check: Check = (holds, problem) => {
    if (!holds) problems.push(problem())
  }
  checkFields(spec, fields, what, '', check)
  more?.(spec, check, problems)
  if (problems.length === 0) return
  const which = typeof spec.type === 'string' ? `${name} ${JSON.stringify(spec.type)}` : `the ${name}`
  throw new RoomDefinitionError(`${which}: ${problems.join('; ')}`)
}

function checkRoom(spec: Fields, check: Check, problems: string[]): void {
  for (const hook of HOOKS)
    check(
      !isAsync(spec[hook]),
      () => `${hook} is async; handlers are synchronous turns: give slow work to ctx.task, or do it in admit`,
    )
  check(
    spec.onMessage === undefined || spec.on_message === undefined,
    () => 'onMessage and on_message are two names of one handler: give one of them',
  )
  check((spec.tick === undefined) === (spec.onTick === undefined), () =>
    spec.tick === undefined ? 'onTick needs tick: { rate }' : 'tick needs an onTick to call',
  )
  check(
    spec.onIdle !== 'sleep' || spec.durability !== 'none',
    () =>
      'onIdle: sleep needs a room that is stored; with durability none there is nothing to rest: write journal or snapshot',
  )
  check(
    spec.notices === undefined || spec.durability !== 'none',
    () => 'notices need a room that is stored, and durability is none: write journal or snapshot',
  )
  if (isObject(spec.layers)) problems.push(...problemsOfLayers(spec.layers))
  if (isObject(spec.layers) && problems.length === 0)
    problems.push(...problemsOfStates(spec.layers as LayerRules, spec))
  checkMigrations(spec, check)
  if (isObject(spec.save)) checkPart(spec.save, SAVE, 'save', check)
  checkListing(spec, check)
  checkSpectators(spec, check)
  checkNames(spec, check)
}

/** How long `create` may take at load, milliseconds. */
const CREATE_MS = 200

/** Returns the problems of the patterns for the first state, and for the schema of the state if there is one. */
function problemsOfStates(layers: LayerRules, { create, state }: Fields): string[] {
  const made = problemsOfPatterns(layers, firstStateOf(create as () => unknown))
  if (made.length > 0 || state === undefined) return made
  const schema = jsonSchemaOf(state as StandardSchemaV1, 'input')
  return schema ? problemsOfPatterns(layers, sampleOf(schema), 'the schema `state` has') : []
}

/**
 * Returns the result of `create` if it takes no options. Otherwise, and if it throws or does not return, rooms are checked when they are
 * created.
 */
export function firstStateOf(create: () => unknown): unknown {
  try {
    return create.length === 0 ? new Boundary().run(create, CREATE_MS) : undefined
  } catch {
    return undefined
  }
}

type Fields = Readonly<Record<string, unknown>>
type Check = (holds: boolean, problem: () => string) => void

const checkRule = (what: string, value: unknown, [holds, right]: Rule, check: Check): void =>
  check(holds(value), () => `${what} is ${show(value)}; it must be ${right}`)

/** Each older version needs a way to the present version. */
function checkMigrations({ version = 1, migrate }: Fields, check: Check): void {
  if (!isNumber(version, 1) || !(migrate === undefined || isObject(migrate))) return
  const steps = migrate ?? {}
  let from = 1
  while (steps[from] !== undefined) from++
  check(
    from >= (version as number),
    () =>
      `version ${version} needs migrate.${from}, which makes a state of version ${from + 1} of one of version ${from}`,
  )
  for (const [from, step] of Object.entries(steps)) {
    check(
      String(Number(from)) === from && Number(from) >= 1 && Number(from) < (version as number),
      () => `migrate.${from} begins with no version below ${version}: set version, or leave it out`,
    )
    checkRule(`migrate.${from}`, step, A_MIGRATION, check)
  }
}

function checkListing({ listing, onIdle }: Fields, check: Check): void {
  if (!isObject(listing)) return
  checkPart(listing, LISTING, 'listing', check)
  check(
    listing.sleeping !== true || onIdle === 'sleep',
    () => 'listing.sleeping is true, but the rooms do not sleep: set onIdle: sleep, or leave it out',
  )
}

function checkSpectators({ spectators }: Fields, check: Check): void {
  if (!isObject(spectators)) return
  checkPart(spectators, SPECTATORS, 'spectators', check)
  check(
    spectators.visible !== true || !((spectators.max as number) > MAX_VISIBLE),
    () =>
      `spectators.max is ${show(spectators.max)} with visible: true; it must be at most ${MAX_VISIBLE}, because all members get every join and leave of visible spectators`,
  )
}

function checkNames(spec: Fields, check: Check): void {
  const messages = namesIn(spec, 'messages', check)
  for (const [type, message] of messages) {
    check(
      !isObject(message) || message.spectators !== true || spec.spectators !== undefined,
      () =>
        `messages.${type}.spectators is true, but the room type has no spectators: add spectators: { max }`,
    )
    checkPart(message, MESSAGE, `messages.${type}`, check)
    if (isObject(message) && message.rate !== undefined)
      checkPart(message.rate, RATE, `messages.${type}.rate`, check)
  }
  for (const [name, call] of namesIn(spec, 'calls', check)) checkPart(call, CALL, `calls.${name}`, check)
  for (const [name, task] of namesIn(spec, 'tasks', check)) {
    check(
      !isSchema(task),
      () => `tasks.${name} is a schema: write ${name}: { result: schema, handle(state, outcome, ctx) { … } }`,
    )
    if (isSchema(task)) continue
    const { retry, data, run }: Fields = isObject(task) ? task : {}
    checkPart(task, retry === undefined ? TASK : RETRIED_TASK, `tasks.${name}`, check)
    check(
      retry !== undefined || (data === undefined && run === undefined),
      () => `tasks.${name} has data or run without retry: write retry: true, or leave them out`,
    )
  }
  for (const [name, timer] of namesIn(spec, 'timers', check)) checkPart(timer, TIMER, `timers.${name}`, check)
  for (const field of ['events', 'notices'])
    for (const [name, schema] of namesIn(spec, field, check))
      checkRule(`${field}.${name}`, schema, A_SCHEMA, check)
  check(
    spec.onMessage !== undefined ||
      spec.on_message !== undefined ||
      messages.every(([, message]) => isObject(message) && message.handle !== undefined),
    () => 'messages without handle need an onMessage that handles them',
  )
}

function namesIn(spec: Fields, field: string, check: Check): [string, unknown][] {
  const named = Object.entries(isObject(spec[field]) ? spec[field] : {})
  for (const [name] of named)
    check(
      NAME.test(name),
      () => `${field} has the name ${show(name)}; names are 1–64 letters, digits, _, . or -`,
    )
  return named
}

export function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null
}

/** Schemas of some libraries are functions. */
function isSchema(value: unknown): boolean {
  return (isObject(value) || typeof value === 'function') && isObject((value as Fields)['~standard'])
}

const isAsync = (value: unknown): boolean =>
  typeof value === 'function' && Object.prototype.toString.call(value) === '[object AsyncFunction]'

export const isNumber = (value: unknown, from: number, to = Number.MAX_SAFE_INTEGER): boolean =>
  typeof value === 'number' && value >= from && value <= to

function show(value: unknown): string {
  if (typeof value === 'function') return isAsync(value) ? 'an async function' : 'a function'
  if (typeof value === 'number' || value === undefined) return String(value)
  return (JSON.stringify(value) ?? typeof value).slice(0, 80)
}

/** Returns a value with all keys that a JSON Schema names. Records, and parts that it does not describe, are objects without entries. */
function sampleOf(schema: JsonSchema | boolean | undefined): unknown {
  if (typeof schema !== 'object') return {}
  const { anyOf, properties, type } = schema
  if (anyOf) return Object.assign({}, ...anyOf.map(sampleOf))
  if (properties)
    return Object.fromEntries(Object.entries(properties).map(([key, value]) => [key, sampleOf(value)]))
  return type === undefined || type === 'object' ? {} : null
}
