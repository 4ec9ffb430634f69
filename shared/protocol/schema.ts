import { isWellFormed, type Json } from '../json.ts'
import { checkJson, NotJson } from '../sync/check.ts'
import { InvalidMessage } from './codec.ts'
import type { ClientMessage, JoinOptions, ResumePosition } from './messages.ts'
import { RESYNC_REASONS } from './opcodes.ts'

/** Lengths in UTF-16 code units, as JavaScript counts them. */
const MAX = { id: 128, token: 8192, room_type: 64, key: 128, room_id: 64 + 1 + 128, type: 64, rooms: 1024 }
const DEFAULT_KEY = 'default'
/** A complaint is no longer, though it may name keys that the client chose. */
const MAX_TEXT = 300

type Fields = { readonly [name: string]: unknown }

/** Every `t` a client may send, with the check of its fields. What is not named here is ignored. */
const PARSERS: { readonly [t: string]: (fields: Fields) => ClientMessage } = {
  hello: parseHello,
  join: (fields) => ({
    t: 'join',
    ref: ref(fields),
    room_type: text(fields, 'room_type', MAX.room_type),
    options: options(fields),
  }),
  leave: (fields) => ({ t: 'leave', ref: ref(fields), room_id: text(fields, 'room_id', MAX.room_id) }),
  message: (fields) => ({
    t: 'message',
    room_id: text(fields, 'room_id', MAX.room_id),
    type: text(fields, 'type', MAX.type),
    data: json(fields, 'data'),
    ...(isAbsent(fields.ref) ? {} : { ref: ref(fields) }),
    ...settled(fields),
  }),
  'state.resync': (fields) => ({
    t: 'state.resync',
    room_id: text(fields, 'room_id', MAX.room_id),
    have_seq: count(fields, 'have_seq'),
    reason:
      RESYNC_REASONS.find((reason) => reason === fields.reason) ??
      wrong(fields, 'reason', '"sequence" or "checksum"'),
  }),
  ping: (fields) => ({
    t: 'ping',
    at: Number.isFinite(fields.at) ? (fields.at as number) : wrong(fields, 'at', 'a number'),
  }),
  token: (fields) => ({ t: 'token', token: text(fields, 'token', MAX.token) }),
}

/**
 * What a client sent, as an object with `t`, checked field by field; fields it does not know are dropped. Throws InvalidMessage, with
 * what could be read of the message it is about.
 */
export function parseClientMessage(fields: Fields): ClientMessage {
  try {
    const parse =
      typeof fields.t === 'string' && Object.hasOwn(PARSERS, fields.t) ? PARSERS[fields.t] : undefined
    return (parse ?? (() => wrong(fields, 't', `one of ${Object.keys(PARSERS).join(', ')}`)))(fields)
  } catch (error) {
    if (!(error instanceof InvalidMessage)) throw error
    const { t, ref, room_id } = fields
    throw new InvalidMessage(error.message.slice(0, MAX_TEXT), {
      ...(typeof t === 'string' && { t }),
      ...(isRef(ref) && { ref }),
      ...(typeof room_id === 'string' && { room_id }),
    })
  }
}

function parseHello(fields: Fields): ClientMessage {
  const project_id = text(fields, 'project_id', MAX.id)
  const has_token = !isAbsent(fields.token)
  const has_resume = !isAbsent(fields.resume)
  if (has_token === has_resume)
    throw new InvalidMessage(
      `hello has ${has_token ? 'both token and resume' : 'neither token nor resume'}; give one`,
    )
  if (has_token) return { t: 'hello', project_id, token: text(fields, 'token', MAX.token) }
  const resume = object(fields, 'resume')
  const rooms = resume.rooms
  if (!Array.isArray(rooms) || rooms.length > MAX.rooms)
    return wrong(resume, 'rooms', `an array of at most ${MAX.rooms} rooms`, 'resume.')
  return {
    t: 'hello',
    project_id,
    resume: {
      session_id: text(resume, 'session_id', MAX.id, 'resume.'),
      resume_token: text(resume, 'resume_token', MAX.token, 'resume.'),
      rooms: rooms.map((room, i) => position(room, `resume.rooms[${i}]`)),
    },
  }
}

function position(value: unknown, path: string): ResumePosition {
  if (!isObject(value)) return wrong({ [path]: value }, path, 'an object with room_id, epoch and seq')
  return {
    room_id: text(value, 'room_id', MAX.room_id, `${path}.`),
    epoch: count(value, 'epoch', `${path}.`),
    seq: count(value, 'seq', `${path}.`),
    ...settled(value, `${path}.`),
  }
}

const settled = (fields: Fields, path?: string): { settled?: number } =>
  isAbsent(fields.settled) ? {} : { settled: count(fields, 'settled', path) }

function options(fields: Fields): JoinOptions {
  if (isAbsent(fields.options)) return { key: DEFAULT_KEY }
  const given = object(fields, 'options')
  json(fields, 'options')
  if (given.key === undefined) return { ...(given as JoinOptions), key: DEFAULT_KEY }
  text(given, 'key', MAX.key, 'options.')
  return given as JoinOptions
}

const isAbsent = (value: unknown): value is null | undefined => value === undefined || value === null

const isRef = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0

const ref = (fields: Fields): number =>
  isRef(fields.ref) ? fields.ref : wrong(fields, 'ref', 'an integer from 1 to 2^53 - 1')

function count(fields: Fields, name: string, path = ''): number {
  const value = fields[name]
  return Number.isSafeInteger(value) && (value as number) >= 0
    ? (value as number)
    : wrong(fields, name, 'an integer from 0 to 2^53 - 1', path)
}

function text(fields: Fields, name: string, max: number, path = ''): string {
  const value = fields[name]
  return typeof value === 'string' && value.length >= 1 && value.length <= max && isWellFormed(value)
    ? value
    : wrong(fields, name, `a string of 1 to ${max} characters`, path)
}

function object(fields: Fields, name: string): Fields {
  const value = fields[name]
  return isObject(value) ? value : wrong(fields, name, 'an object')
}

function json(fields: Fields, name: string): Json {
  const value = fields[name]
  if (value === undefined) return wrong(fields, name, 'a JSON value')
  try {
    checkJson(undefined, value)
    return value
  } catch (error) {
    if (error instanceof NotJson) throw new InvalidMessage(`${name}: ${error.message}`)
    throw error
  }
}

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Names the field, what it was (never its content, which may be secret or large) and what it must be. */
function wrong(fields: Fields, name: string, right: string, path = ''): never {
  throw new InvalidMessage(`${path}${name} is ${describe(fields[name])}; it must be ${right}`)
}

function describe(value: unknown): string {
  if (value === undefined) return 'missing'
  if (value === null || typeof value === 'boolean' || typeof value === 'number') return String(value)
  if (typeof value === 'string')
    return value === '' ? 'an empty string' : `a string of ${value.length} characters`
  return Array.isArray(value) ? 'an array' : 'an object'
}
