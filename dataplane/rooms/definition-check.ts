/** A room definition has mistakes; the text names each with what is there and what would be right. */
export class RoomDefinitionError extends Error {
  override readonly name = 'RoomDefinitionError'
}

const TYPE = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/
const NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/
const MAX_RATE = 240
const MAX_IDLE_SECONDS = 86_400
const DURABILITIES = ['journal', 'snapshot', 'none']
const HOOKS = ['on_join', 'on_message', 'on_leave', 'on_tick', 'on_dispose']
const FIELDS = [
  'type',
  'max_members',
  'options',
  'messages',
  'events',
  'tasks',
  'state',
  'sync',
  'tick',
  'durability',
  'idle_seconds',
  'create',
  'admit',
  ...HOOKS,
]

/** Throws RoomDefinitionError unless `spec` is a room definition that can run. */
export function checkSpec(spec: unknown): void {
  if (!isObject(spec)) throw new RoomDefinitionError(`defineRoom needs an object, got ${show(spec)}`)
  const problems: string[] = []
  const check = (holds: boolean, problem: () => string) => {
    if (!holds) problems.push(problem())
  }
  for (const field of Object.keys(spec))
    check(FIELDS.includes(field), () => `${field} is no field of a room; there are ${FIELDS.join(', ')}`)
  check(
    typeof spec.type === 'string' && TYPE.test(spec.type),
    () =>
      `type is ${show(spec.type)}; it must be 1–64 letters, digits, _ or -, beginning with a letter or digit`,
  )
  check(
    spec.max_members === undefined || isWhole(spec.max_members, 1),
    () => `max_members is ${show(spec.max_members)}; it must be a whole number, at least 1`,
  )
  checkTimes(spec, check)
  for (const field of ['options', 'state'])
    check(spec[field] === undefined || isSchema(spec[field]), () => `${field} is ${notASchema}`)
  checkNames(spec, check)
  checkHooks(spec, check)
  if (problems.length === 0) return
  const name = typeof spec.type === 'string' ? `room type ${JSON.stringify(spec.type)}` : 'the room type'
  throw new RoomDefinitionError(`${name}: ${problems.join('; ')}`)
}

type Fields = Readonly<Record<string, unknown>>
type Check = (holds: boolean, problem: () => string) => void

const notASchema = 'no validator; use one that follows Standard Schema, such as valibot’s v.object({ … })'

function checkTimes(spec: Fields, check: Check): void {
  const rateOf = (field: string): unknown => (isObject(spec[field]) ? spec[field].rate : undefined)
  check(
    spec.sync === undefined || isNumber(rateOf('sync'), 0, MAX_RATE),
    () =>
      `sync is ${show(spec.sync)}; it must be { rate } with 0 (at once) to ${MAX_RATE} flushes per second`,
  )
  check(
    spec.tick === undefined || (isNumber(rateOf('tick'), 0, MAX_RATE) && rateOf('tick') !== 0),
    () =>
      `tick is ${show(spec.tick)}; it must be { rate } with more than 0 and at most ${MAX_RATE} calls per second`,
  )
  check((spec.tick === undefined) === (spec.on_tick === undefined), () =>
    spec.tick === undefined ? 'on_tick needs tick: { rate }' : 'tick needs an on_tick to call',
  )
  check(
    spec.durability === undefined || DURABILITIES.includes(spec.durability as string),
    () => `durability is ${show(spec.durability)}; it must be ${DURABILITIES.join(', ')}`,
  )
  check(
    spec.idle_seconds === undefined || isNumber(spec.idle_seconds, 0, MAX_IDLE_SECONDS),
    () => `idle_seconds is ${show(spec.idle_seconds)}; it must be 0 to ${MAX_IDLE_SECONDS}`,
  )
}

function checkNames(spec: Fields, check: Check): void {
  const messages = namesIn(spec, 'messages', check)
  for (const [type, message] of messages) {
    check(isObject(message) && isSchema(message.data), () => `messages.${type}.data is ${notASchema}`)
    if (isObject(message) && message.rate !== undefined) checkRate(type, message.rate, check)
  }
  for (const field of ['events', 'tasks'])
    for (const [name, schema] of namesIn(spec, field, check))
      check(isSchema(schema), () => `${field}.${name} is ${notASchema}`)
  for (const [type] of namesIn(spec, 'tasks', () => {}))
    check(
      !messages.some(([message]) => message === type),
      () => `${type} is in both messages and tasks; clients must not be able to send a task's outcome`,
    )
  check(
    spec.on_message !== undefined || (messages.length === 0 && namesIn(spec, 'tasks', () => {}).length === 0),
    () => 'messages and tasks need an on_message that handles them',
  )
}

function namesIn(spec: Fields, field: string, check: Check): [string, unknown][] {
  const value = spec[field]
  if (value === undefined) return []
  check(isObject(value), () => `${field} is ${show(value)}; it must be an object by name`)
  if (!isObject(value)) return []
  for (const name of Object.keys(value))
    check(
      NAME.test(name),
      () => `${field} has the name ${show(name)}; names are 1–64 letters, digits, _, . or -`,
    )
  return Object.entries(value)
}

function checkRate(type: string, rate: unknown, check: Check): void {
  const { per_second, burst }: Fields = isObject(rate) ? rate : {}
  check(
    isNumber(per_second, 0) && per_second !== 0,
    () => `messages.${type}.rate.per_second is ${show(per_second)}; it must be a number above 0`,
  )
  check(
    burst === undefined || isNumber(burst, 1),
    () => `messages.${type}.rate.burst is ${show(burst)}; it must be a number of at least 1`,
  )
}

function checkHooks(spec: Fields, check: Check): void {
  check(
    typeof spec.create === 'function' && !isAsync(spec.create),
    () =>
      `create is ${show(spec.create)}; it must be a function, not an async one, that returns the first state`,
  )
  check(
    spec.admit === undefined || typeof spec.admit === 'function',
    () => `admit is ${show(spec.admit)}; it must be a function`,
  )
  for (const hook of HOOKS) {
    const value = spec[hook]
    check(
      value === undefined || typeof value === 'function',
      () => `${hook} is ${show(value)}; it must be a function`,
    )
    check(
      !isAsync(value),
      () => `${hook} is async; handlers are synchronous turns: give slow work to ctx.task, or do it in admit`,
    )
  }
}

const isObject = (value: unknown): value is Fields => typeof value === 'object' && value !== null

/** Some libraries' schemas are functions. */
const isSchema = (value: unknown): boolean =>
  (isObject(value) || typeof value === 'function') && isObject((value as Fields)['~standard'])

const isAsync = (value: unknown): boolean =>
  typeof value === 'function' && Object.prototype.toString.call(value) === '[object AsyncFunction]'

const isNumber = (value: unknown, from: number, to = Number.MAX_SAFE_INTEGER): boolean =>
  typeof value === 'number' && value >= from && value <= to

const isWhole = (value: unknown, from: number): boolean =>
  Number.isSafeInteger(value) && isNumber(value, from)

function show(value: unknown): string {
  if (typeof value === 'function') return isAsync(value) ? 'an async function' : 'a function'
  if (typeof value === 'number' || value === undefined) return String(value)
  return (JSON.stringify(value) ?? typeof value).slice(0, 80)
}
