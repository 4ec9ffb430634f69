import { isWellFormed } from '../json.ts'
import { checkJson, NotJson } from '../sync/check.ts'
import { InvalidMessage, type UnsafeInteger } from './error-codes.ts'
import type { Either, Field, Fields } from './fields.ts'
import { CLIENT_MESSAGES, type ClientMessage, type JoinOptions, MAX } from './messages.ts'

/** Checks of the fields of a client's message, from the table in `messages.ts`. The room checks payloads, with the schema of its type. */

const DEFAULT_KEY = 'default'
/** Maximum length of an error text. It may contain keys that the client chose. */
const MAX_TEXT = 300

/** `named`: objects, as in JSON. `positional`: arrays, as in MessagePack. */
type Form = 'named' | 'positional'
type Named = { readonly [name: string]: unknown }
/** Returns the checked value of a field. Throws InvalidMessage, which names the field by `prefix` and `name`. */
type Check = (value: unknown, prefix: string, name: string) => unknown
/** Adds the checked fields of an object or array to `checked`. Unknown fields are ignored. */
type CheckFields = (found: unknown, checked: { [name: string]: unknown }, prefix: string) => void

type ClientType = ClientMessage['t']
const TYPES = Object.keys(CLIENT_MESSAGES) as ClientType[]
const CHECKS: { readonly [form in Form]: ReadonlyMap<ClientType, CheckFields> } = {
  named: new Map(TYPES.map((t) => [t, checkFields(t, CLIENT_MESSAGES[t].fields, 'named')])),
  positional: new Map(TYPES.map((t) => [t, checkFields(t, CLIENT_MESSAGES[t].fields, 'positional', 1)])),
}
const LAST_OPCODE = Math.max(...TYPES.map((t) => CLIENT_MESSAGES[t].opcode))
const TYPE_OF: ReadonlyMap<unknown, ClientType> = new Map(TYPES.map((t) => [CLIENT_MESSAGES[t].opcode, t]))

/**
 * Checks the message of a client field by field, and returns it as an object with `t`. Unknown fields are dropped. Throws InvalidMessage,
 * with the readable fields that identify the message.
 */
export function parseNamed(found: Named): ClientMessage {
  const t = found.t as ClientType
  return parse(CHECKS.named.get(t), t, found)
}

/** The same for an array: an opcode, and the fields at their positions in the table. */
export function parsePositional(found: readonly unknown[]): ClientMessage {
  const [opcode] = found
  const t = TYPE_OF.get(opcode)
  if (!t)
    throw new InvalidMessage(
      `the opcode is ${typeof opcode === 'number' ? opcode : 'no number'}; a client may send 0 to ${LAST_OPCODE}`,
    )
  return parse(CHECKS.positional.get(t), t, found)
}

/** Returns the error of a message with an integer that a double cannot represent. It identifies the message as other errors do. */
export const unsafeInteger = ({ message }: UnsafeInteger, of: ClientMessage): InvalidMessage =>
  new InvalidMessage(`a field has ${message}`, aboutOf(of.t, of as Named))

function parse(
  check: CheckFields | undefined,
  t: ClientType,
  found: Named | readonly unknown[],
): ClientMessage {
  try {
    if (!check) return wrong(t, '', 't', `one of ${TYPES.join(', ')}`)
    // Not created as { t }: V8 reserves no space for more properties in such an object.
    const message: { [name: string]: unknown } = {}
    message.t = t
    check(found, message, '')
    if (t === 'message' && message.ref !== undefined && message.settled === undefined)
      wrong(undefined, '', 'settled', 'an integer from 0 to 2^53 - 1 where there is a ref')
    return message as ClientMessage
  } catch (error) {
    if (!(error instanceof InvalidMessage)) throw error
    const about = Array.isArray(found) ? namesOf(t, found) : (found as Named)
    throw new InvalidMessage(error.message.slice(0, MAX_TEXT), aboutOf(t, about))
  }
}

/** Returns the readable fields that identify an invalid message. */
const aboutOf = (t: unknown, { ref, request_id: requestId, room_id: roomId }: Named) => ({
  ...(typeof t === 'string' && { t }),
  ...(isRef(ref) && { ref }),
  ...(isRef(requestId) && { requestId }),
  ...(isText(roomId, MAX.room_id) && { roomId }),
})

const namesOf = (t: ClientType, elements: readonly unknown[]): Named =>
  Object.fromEntries(Object.keys(CLIENT_MESSAGES[t].fields).map((name, i) => [name, elements[i + 1]]))

/** `owner`: the owner of the fields, for error texts. `first`: position of the first field in an array. */
function checkFields(owner: string, fields: Fields, form: Form, first = 0): CheckFields {
  const checks = Object.entries(fields).map(([name, field], i) => {
    return {
      name,
      place: form === 'named' ? name : first + i,
      optional: field.kind === 'optional',
      check: field.kind === 'either' ? undefined : checkOf(field, form),
      checkEither: field.kind === 'either' ? eitherCheck(owner, field, form) : undefined,
    }
  })
  return (found, checked, prefix) => {
    for (let i = 0; i < checks.length; i++) {
      const { name, place, optional, check, checkEither } = checks[i]!
      const value = (found as Named)[place]
      if (check) {
        if (!(optional && isAbsent(value))) checked[name] = check(value, prefix, name)
      } else checkEither?.(form === 'named' ? found : value, checked, prefix)
    }
  }
}

/** Reads one of two fields: from an object, or from an array element that is either of them. */
function eitherCheck(owner: string, { text, record }: Either, form: Form): CheckFields {
  const checkText = checkOf(text.field, form)
  const checkRecord = checkOf(record.field, form)
  return (found, checked, prefix) => {
    const { [text.name]: one, [record.name]: other } =
      form === 'named' ? (found as Named) : { [typeof found === 'string' ? text.name : record.name]: found }
    if (isAbsent(one) === isAbsent(other)) {
      const which = isAbsent(one)
        ? `neither ${text.name} nor ${record.name}`
        : `both ${text.name} and ${record.name}`
      throw new InvalidMessage(`${owner} has ${which}; give one`)
    }
    if (isAbsent(other)) checked[text.name] = checkText(one, prefix, text.name)
    else checked[record.name] = checkRecord(other, prefix, record.name)
  }
}

function checkOf(field: Field, form: Form): Check {
  switch (field.kind) {
    case 'text':
      return textCheck(field.max)
    case 'ref':
      return (value, prefix, name) =>
        isRef(value) ? value : wrong(value, prefix, name, 'an integer from 1 to 2^53 - 1')
    case 'count':
      return (value, prefix, name) =>
        isCount(value) ? value : wrong(value, prefix, name, 'an integer from 0 to 2^53 - 1')
    case 'number':
      return (value, prefix, name) =>
        Number.isFinite(value) ? value : wrong(value, prefix, name, 'a number')
    case 'flag':
      return (value, prefix, name) =>
        typeof value === 'boolean' ? value : wrong(value, prefix, name, 'true or false')
    case 'json':
      return checkValue
    case 'options':
      return checkOptions
    case 'choice':
      return choiceCheck(field.names, form)
    case 'list':
      return listCheck(checkOf(field.of, form), field.max)
    case 'record':
      return recordCheck(field.fields, form)
    default:
      return checkOf(field.of, form)
  }
}

function textCheck(max: number): Check {
  return (value, prefix, name) =>
    isText(value, max) ? value : wrong(value, prefix, name, `a string of 1 to ${max} characters`)
}

const isText = (value: unknown, max: number): value is string =>
  typeof value === 'string' && value.length >= 1 && value.length <= max && isWellFormed(value)

function choiceCheck(names: readonly string[], form: Form): Check {
  const right = names.map((name) => `"${name}"`).join(' or ')
  return (value, prefix, name) => {
    const chosen = form === 'named' ? value : typeof value === 'number' ? names[value] : undefined
    return names.includes(chosen as string) ? chosen : wrong(value, prefix, name, right)
  }
}

function listCheck(check: Check, max: number): Check {
  return (value, prefix, name) => {
    if (!Array.isArray(value) || value.length > max)
      return wrong(value, prefix, name, `an array of at most ${max}`)
    return value.map((element, i) => check(element, prefix, `${name}[${i}]`))
  }
}

function recordCheck(fields: Fields, form: Form): Check {
  const is = form === 'named' ? isObject : Array.isArray
  const check = checkFields('', fields, form)
  return (value, prefix, name) => {
    if (!is(value)) return wrong(value, prefix, name, `an object with ${Object.keys(fields).join(', ')}`)
    const checked = {}
    check(value, checked, `${prefix}${name}.`)
    return checked
  }
}

function checkOptions(value: unknown, prefix: string, name: string): JoinOptions {
  if (isAbsent(value)) return { key: DEFAULT_KEY }
  if (!isObject(value)) return wrong(value, prefix, name, 'an object')
  const options = checkValue(value, prefix, name) as JoinOptions
  if (options.key === undefined) return { ...options, key: DEFAULT_KEY }
  checkKey(options.key, `${prefix}${name}.`, 'key')
  return options
}

const checkKey = textCheck(MAX.key)

function checkValue(value: unknown, prefix: string, name: string): unknown {
  if (value === undefined) return wrong(value, prefix, name, 'a JSON value')
  try {
    checkJson(value)
    return value
  } catch (error) {
    if (error instanceof NotJson) throw new InvalidMessage(`${prefix}${name}: ${error.message}`)
    throw error
  }
}

const isAbsent = (value: unknown): value is null | undefined => value === undefined || value === null

export const isRef = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0

export const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0

function isObject(value: unknown): value is Named {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/**
 * Returns an error text with the name of the field, the type of the value and what is required. It never has the content, which may be
 * secret or large.
 */
function wrong(value: unknown, prefix: string, name: string, right: string): never {
  throw new InvalidMessage(`${prefix}${name} is ${describe(value)}; it must be ${right}`)
}

function describe(value: unknown): string {
  if (value === undefined) return 'missing'
  if (value === null || typeof value === 'boolean' || typeof value === 'number') return String(value)
  if (typeof value === 'string')
    return value === '' ? 'an empty string' : `a string of ${value.length} characters`
  return Array.isArray(value) ? 'an array' : 'an object'
}
