/** Schemas of all bodies, queries and answers. They validate requests, and /openapi.json is made from them. */
import * as v from 'valibot'
import { type IdPrefix, idPattern } from '../shared/ids.ts'
import { isWellFormed } from '../shared/json.ts'
import { LOG_LEVELS } from '../shared/log.ts'
import { MAX_BAN_REASON_BYTES } from '../shared/players.ts'
import { CONTROL_PROBLEMS } from '../shared/problem.ts'
import { dataFault, MAX_SUB_LENGTH, subFault } from '../shared/tokens.ts'
import { MINT_SCOPE, PLAYER_SCOPE, ROOM_CALL_SCOPE, ROOM_READ_SCOPE } from './keys.ts'
import { MEMBER_PATTERN } from './records.ts'

/** Pattern of text without lone surrogates, also valid in JSON Schema. */
const CHARACTER = '[^\\uD800-\\uDFFF]'

/** Checks a text against a pattern that rejects lone surrogates, which JSON can escape. */
const misses =
  (message: string) =>
  ({ input }: v.RegexIssue<string>): string =>
    isWellFormed(input) ? message : 'must not have half a surrogate pair, which no UTF-8 can carry'

/** Schema of text with `min` to `max` characters (code points, as in JSON Schema). */
function text(min: number, max: number, description: string) {
  const message = `must be text of ${min} to ${max} characters`
  const pattern = new RegExp(`^${CHARACTER}{${min},${max}}$`, 'u')
  return v.pipe(v.string(message), v.regex(pattern, misses(message)), v.description(description))
}

function wholeNumber(min: number, max: number, description: string) {
  const message = `must be a whole number from ${min} to ${max}`
  return v.pipe(
    v.number(message),
    v.integer(message),
    v.minValue(min, message),
    v.maxValue(max, message),
    v.description(description),
  )
}

/** Schema of a query parameter that is an integer. */
function wholeNumberText(min: number, max: number, description: string) {
  const message = `must be a whole number from ${min} to ${max}`
  return v.pipe(
    v.string(),
    v.regex(/^\d{1,9}$/, message),
    v.transform(Number),
    wholeNumber(min, max, description),
  )
}

/** Schema of a query parameter that is `1` or absent. */
const flag = (description: string) =>
  v.exactOptional(v.pipe(v.picklist(['1'], 'must be 1'), v.description(description)))

/** Returns a schema with a description. */
const described = <S extends v.GenericSchema>(schema: S, description: string) =>
  v.pipe(schema, v.description(description))

/** Returns a schema with an example, which /openapi.json shows. */
const shown = <const S extends v.GenericSchema>(schema: S, example: v.InferInput<S>) =>
  v.pipe(schema, v.examples<v.InferOutput<S>, [v.InferOutput<S>]>([example as v.InferOutput<S>]))

/** Values of the examples. */
const PROJECT_ID = 'prj_4TqHk2sVw9XeLb7m'
const KEY_ID = 'key_Zr8Np3cYd6UgQa1f'
const AT = { minute: '2026-12-24T18:00:00.000Z', hour: '2026-12-24T19:00:00.000Z' }
const TURN = { epoch: 3, seq: 128 }

/** Examples of the parameters in paths. */
export const PATH_PARAMETERS: Readonly<
  Record<string, { readonly description: string; readonly example: string }>
> = {
  id: { description: 'The project.', example: PROJECT_ID },
  keyId: { description: 'The key.', example: KEY_ID },
  sessionId: { description: 'The session.', example: 'ses_m5JwTz0RkEv2Ho8i' },
  sub: { description: 'The player’s id in your game.', example: 'alice' },
  type: { description: 'The room type.', example: 'duel' },
  key: { description: 'The key of the room.', example: 'table-7' },
  name: { description: 'The call.', example: 'grant' },
}

const time = (description: string) => v.pipe(v.string(), v.isoTimestamp(), v.description(description))
const id = (prefix: IdPrefix, description: string) =>
  v.pipe(
    v.string(`must be an id such as ${prefix}_…`),
    v.regex(idPattern(prefix), `must be an id such as ${prefix}_…`),
    v.description(description),
  )

const ProjectName = text(1, 100, 'Name of the project, for people.')

export const CreateProject = shown(v.strictObject({ name: ProjectName }), { name: 'duels' })

export const RenameProject = shown(v.strictObject({ name: ProjectName }), { name: 'duels-staging' })

export const CreateKey = shown(
  v.strictObject({
    name: v.optional(text(1, 100, 'Name of the key, for people.')),
    scopes: v.optional(
      v.pipe(
        v.array(text(1, 64, 'A scope.'), 'must be a list of scopes'),
        v.maxLength(32, 'must have at most 32 scopes'),
        v.description(
          `What the key may do: ${MINT_SCOPE} issues tokens, ${ROOM_READ_SCOPE} lists rooms and looks into them, ${ROOM_CALL_SCOPE} calls, opens and closes rooms and reserves seats, ${PLAYER_SCOPE} acts on players.`,
        ),
      ),
      [MINT_SCOPE],
    ),
  }),
  { name: 'backend', scopes: [MINT_SCOPE, ROOM_CALL_SCOPE] },
)

export const RotateKey = shown(
  v.strictObject({
    grace_seconds: v.optional(
      wholeNumber(0, 604_800, 'Time for which the old key stays valid, in seconds.'),
      3600,
    ),
  }),
  { grace_seconds: 3600 },
)

const Sub = v.pipe(
  text(1, MAX_SUB_LENGTH, 'The player’s id in your game, which room code receives.'),
  v.rawCheck(({ dataset, addIssue }) => {
    const message = dataset.typed ? subFault(dataset.value) : undefined
    if (message !== undefined) addIssue({ message })
  }),
)

/** Path parameter with a player's sub. */
export const SubPath = v.object({ sub: Sub })

export const Nothing = v.strictObject({})

const ROOMS_MESSAGE = 'must be a room type, or type:key with a key of 1 to 128 characters'
const ROOMS_PATTERN = new RegExp(`^(?:(?!:)${CHARACTER}){1,64}(?::${CHARACTER}{1,128})?$`, 'u')

const Data = v.pipe(
  // A schema of objects would accept an array and return a different value.
  v.unknown(),
  v.rawCheck(({ dataset, addIssue }) => {
    const message = dataset.typed ? dataFault(dataset.value) : undefined
    if (message !== undefined) addIssue({ message })
  }),
  v.metadata({ type: 'object' }),
  v.description(
    'Data of the player for room code: an object of at most 2 KiB as JSON. Other players do not receive it. The bearer can read it.',
  ),
)

export const SetData = shown(v.strictObject({ data: Data }), { data: { rank: 12 } })

const ROOM_TYPE_MESSAGE = 'must be a room type of 1 to 64 characters without a colon'

export const SetBan = shown(
  v.strictObject({
    until: v.exactOptional(
      v.pipe(
        v.string(),
        v.isoTimestamp('must be a time such as 2026-01-31T12:00:00.000Z'),
        v.description('End of the ban. Absent: it does not end.'),
      ),
    ),
    room_types: v.exactOptional(
      v.pipe(
        v.array(
          v.pipe(
            v.string(ROOM_TYPE_MESSAGE),
            v.regex(new RegExp(`^(?:(?!:)${CHARACTER}){1,64}$`, 'u'), misses(ROOM_TYPE_MESSAGE)),
          ),
          'must be a list of room types',
        ),
        v.minLength(
          1,
          'must have at least 1 room type: leave it out to ban the player from the whole project',
        ),
        v.maxLength(64, 'must have at most 64 room types'),
        v.description('Room types that the player cannot join. Absent: the whole project.'),
      ),
    ),
    reason: v.exactOptional(
      v.pipe(
        text(1, MAX_BAN_REASON_BYTES, 'Text for the player, of at most 100 bytes.'),
        v.maxBytes(MAX_BAN_REASON_BYTES, `must have at most ${MAX_BAN_REASON_BYTES} bytes in UTF-8`),
      ),
    ),
  }),
  { until: AT.hour, room_types: ['duel'], reason: 'cheating' },
)

export const IssueToken = shown(
  v.strictObject({
    project_id: id('prj', 'Project of the token.'),
    key_id: v.optional(
      id(
        'key',
        'Key that signs the token. Its revocation ends the token. Absent: the key of the caller, or the project’s built-in pair.',
      ),
    ),
    ttl_seconds: v.optional(wholeNumber(10, 86_400, 'Lifetime of the token in seconds.'), 300),
    aud: v.optional(text(1, 256, 'Audience of the token.')),
    sub: v.optional(Sub),
    data: v.optional(Data),
    rooms: v.optional(
      v.pipe(
        v.array(
          v.pipe(v.string(ROOMS_MESSAGE), v.regex(ROOMS_PATTERN, misses(ROOMS_MESSAGE))),
          'must be a list of rooms',
        ),
        v.maxLength(64, 'must have at most 64 rooms'),
        v.description('Room types, or type:key, that the bearer may join. Absent: all.'),
      ),
    ),
  }),
  { project_id: PROJECT_ID, ttl_seconds: 300, sub: 'alice', data: { rank: 12 }, rooms: ['duel'] },
)

/** `next_cursor` continues a page. Null: there are no more. */
export const encodeCursor = (next: string | undefined): string | null =>
  next === undefined ? null : Buffer.from(next).toString('base64url')

const NextCursor = described(v.nullable(v.string()), 'Cursor of the next page. null: there are no more.')

/** Query of a page. Its cursor, decoded with `encoding`, matches `pattern`. */
function pageQuery(pattern: RegExp, encoding: 'latin1' | 'utf8') {
  const decode = (cursor: string): string => Buffer.from(cursor, 'base64url').toString(encoding)
  return v.object({
    limit: v.optional(wholeNumberText(1, 200, 'Maximum number of results.'), '50'),
    cursor: v.optional(
      v.pipe(
        v.string(),
        v.check((cursor) => pattern.test(decode(cursor)), 'must be the next_cursor of an earlier answer'),
        v.transform(decode),
        v.metadata({ description: 'next_cursor of the previous page.' }),
      ),
    ),
  })
}

export const PageQuery = pageQuery(MEMBER_PATTERN, 'latin1')

export const BansQuery = pageQuery(/^\d{15}:/, 'utf8')

export const RoomsQuery = shown(
  v.object({
    type: v.exactOptional(
      described(v.string(), 'Rooms of this type that are listed: see listing of the room type.'),
    ),
    where: v.exactOptional(
      described(
        v.string(),
        'With type: conditions on fields of data, as JSON. Each is a value, a list of values, or {"min":…,"max":…}.',
      ),
    ),
    order: v.exactOptional(
      v.pipe(
        v.picklist(
          ['fullest', 'emptiest', 'newest', 'oldest'],
          'must be fullest, emptiest, newest or oldest',
        ),
        v.description('With type: order of the rooms, by default fullest.'),
      ),
    ),
    full: flag('With type, 1: also rooms without a free seat.'),
    sleeping: flag('1, in place of type: rooms that no node has. Takes an operator token.'),
    limit: v.exactOptional(
      wholeNumberText(
        1,
        200,
        'Maximum number of results. With type: 1 to 100, by default 20. With sleeping: 1 to 200, by default 50.',
      ),
    ),
    cursor: v.optional(described(v.string(), 'next_cursor of the previous page.')),
  }),
  { type: 'duel', order: 'newest' },
)

export const KeyStatusQuery = shown(
  v.object({
    project_id: id('prj', 'The project.'),
    key_id: v.optional(id('key', 'The key; absent: the project’s built-in pair.')),
  }),
  { project_id: PROJECT_ID, key_id: KEY_ID },
)

export const RoomPage = shown(
  v.object({
    rooms: v.array(
      v.pipe(
        v.object({
          room_id: described(v.string(), 'type:key, unique in the project.'),
          room_type: v.string(),
          key: v.string(),
          players: v.exactOptional(described(v.number(), 'With type: number of players.')),
          max_players: v.exactOptional(
            described(v.nullable(v.number()), 'With type: maximum number of players. null: no limit.'),
          ),
          spectators: v.exactOptional(
            described(
              v.number(),
              'With type: number of spectators, at most 10 s old. Absent: its type has no spectators.',
            ),
          ),
          reserved: v.exactOptional(
            described(v.number(), 'With type: seats that are reserved for players who have not joined.'),
          ),
          created_at: v.exactOptional(time('With type: time of the room’s creation.')),
          data: v.exactOptional(described(v.unknown(), 'With type: data of the room’s row.')),
          code: v.exactOptional(
            described(v.string(), 'With type: code of the room. Absent: its type has no codes.'),
          ),
          expires_at: v.exactOptional(
            described(
              v.nullable(v.string()),
              'With sleeping: approximate time at which the room is deleted if no client returns. null: not before its database has its last state.',
            ),
          ),
        }),
        v.metadata({ ref: 'Room' }),
      ),
    ),
    next_cursor: NextCursor,
  }),
  {
    rooms: [
      {
        room_id: 'duel:table-7',
        room_type: 'duel',
        key: 'table-7',
        players: 1,
        max_players: 2,
        reserved: 0,
        created_at: AT.minute,
        data: { map: 'forest' },
      },
    ],
    next_cursor: null,
  },
)

/** Schema of a JSON object. A schema of objects would accept an array and return a different value. */
const jsonObject = (description: string) =>
  v.pipe(
    v.unknown(),
    v.check(
      (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
      'must be an object',
    ),
    v.metadata({ type: 'object' }),
    v.description(description),
  )

export const CallData = shown(described(v.unknown(), 'Data of the call: any JSON. Without a body: null.'), {
  coins: 50,
})

export const CallQuery = v.object({
  open: flag('1: creates the room if it does not exist.'),
})

export const OpenRoom = shown(
  v.strictObject({
    options: v.exactOptional(jsonObject('Join options of the first member, for a room that does not exist.')),
  }),
  { options: { map: 'forest' } },
)

export const ReserveSeats = shown(
  v.strictObject({
    subs: v.pipe(
      v.array(Sub, 'must be a list of subs'),
      v.minLength(1, 'must have at least one sub'),
      v.maxLength(1000, 'must have at most 1000 subs'),
      v.description('Players who get a seat: all of them, or none.'),
    ),
    seconds: wholeNumber(1, 86_400, 'Time for which the seats are reserved, in seconds.'),
  }),
  { subs: ['alice', 'bob'], seconds: 60 },
)

export const KickPlayer = shown(
  v.strictObject({
    sub: Sub,
    reason: v.exactOptional(text(1, 300, 'Text for the player.')),
  }),
  { sub: 'alice', reason: 'You were idle.' },
)

export const RoomQuery = shown(
  v.object({
    include_state: flag('1: with the state, without its hidden layers.'),
    include_layers: flag('1: with the hidden layers. Takes an operator token.'),
  }),
  { include_state: '1' },
)

/** Position of a committed turn in its room. */
const turn = {
  epoch: described(v.number(), 'Number that grows each time a node opens the room.'),
  seq: described(v.number(), 'Number of the committed update.'),
}

export const CallAnswer = shown(
  v.object({
    reply: described(v.unknown(), 'null: the call has no reply.'),
    ...turn,
  }),
  { reply: { coins: 150 }, ...TURN },
)
export const OpenedRoom = shown(
  v.object({
    created: described(v.boolean(), 'False: the room existed.'),
    ...turn,
  }),
  { created: true, ...TURN },
)
export const ReservedSeats = shown(v.object({ reserved: v.literal(true), ...turn }), {
  reserved: true,
  ...TURN,
})
export const KickedPlayer = shown(
  v.object({
    kicked: described(v.number(), 'Number of ended seats of the player.'),
    ...turn,
  }),
  { kicked: 1, ...TURN },
)
export const ClosedRoom = shown(v.object({ ended: v.literal(true) }), { ended: true })

export const RoomView = shown(
  v.pipe(
    v.object({
      project_id: v.string(),
      room_id: v.string(),
      members: v.array(
        v.object({
          member_id: v.string(),
          sub: v.nullable(v.string()),
          connected: v.boolean(),
          spectator: v.boolean(),
          data: v.nullable(v.record(v.string(), v.unknown())),
        }),
      ),
      reservations: v.array(v.object({ sub: v.string(), expires_at: time('End of the reservation.') })),
      ...turn,
      state: v.exactOptional(described(v.unknown(), 'With include_state.')),
    }),
    v.metadata({ ref: 'RoomView' }),
  ),
  {
    project_id: PROJECT_ID,
    room_id: 'duel:table-7',
    members: [
      {
        member_id: 'mem_c1SxWb5GtOy9Ei3k',
        sub: 'alice',
        connected: true,
        spectator: false,
        data: { rank: 12 },
      },
    ],
    reservations: [{ sub: 'bob', expires_at: AT.hour }],
    ...TURN,
    state: { hp: { mem_c1SxWb5GtOy9Ei3k: 80 } },
  },
)

export const EndedRoom = shown(
  v.object({ project_id: v.string(), room_id: v.string(), ended: v.literal(true) }),
  { project_id: PROJECT_ID, room_id: 'duel:table-7', ended: true },
)

export const NotifyKey = shown(
  v.pipe(
    v.object({
      project_id: v.string(),
      notify_key: described(
        v.string(),
        'whsec_ and a key in base64. While NOTIFY_SECRET has several values, one key for each, separated by commas.',
      ),
    }),
    v.metadata({ ref: 'NotifyKey' }),
  ),
  { project_id: PROJECT_ID, notify_key: 'whsec_pcJk0Lr4mXb2Vq8Zt6Ns1Wd3Ef5Gh7Jk9Lm0Pq2Rs4=' },
)

const PROJECT = { id: PROJECT_ID, name: 'duels', created_at: AT.minute, disabled_at: null }

export const Project = shown(
  v.pipe(
    v.object({
      id: v.string(),
      name: v.string(),
      created_at: time('Time of its creation.'),
      disabled_at: described(v.nullable(v.string()), 'Time at which it was disabled. null: it is enabled.'),
    }),
    v.metadata({ ref: 'Project' }),
  ),
  PROJECT,
)

export const DeletedProject = shown(
  v.object({
    id: v.string(),
    deleted: described(
      v.boolean(),
      'false: it still has rooms. Send the request again to end the next of them.',
    ),
    ended_rooms: described(v.number(), 'Number of rooms that this request has ended.'),
  }),
  { id: PROJECT_ID, deleted: true, ended_rooms: 4 },
)

export const EndedSession = shown(
  v.object({
    project_id: v.string(),
    session_id: v.string(),
    ended: v.literal(true),
  }),
  { project_id: PROJECT_ID, session_id: 'ses_m5JwTz0RkEv2Ho8i', ended: true },
)

export const ProjectPage = shown(
  v.object({
    projects: v.array(Project),
    next_cursor: NextCursor,
  }),
  { projects: [PROJECT], next_cursor: null },
)

const Status = v.picklist(['active', 'retiring', 'revoked'])

const keyFields = {
  id: v.string(),
  project_id: v.string(),
  name: v.nullable(v.string()),
  scopes: v.array(v.string()),
  status: Status,
  created_at: time('Time of its creation.'),
  retires_at: described(v.nullable(v.string()), 'End of the grace time of a rotated key.'),
  revoked_at: described(v.nullable(v.string()), 'Time of the revocation.'),
  rotated_from: described(v.nullable(v.string()), 'The key it replaces.'),
}

const KEY = {
  id: KEY_ID,
  project_id: PROJECT_ID,
  name: 'backend',
  scopes: [MINT_SCOPE, ROOM_CALL_SCOPE],
  status: 'active' as const,
  created_at: AT.minute,
  retires_at: null,
  revoked_at: null,
  rotated_from: null,
}

export const Key = shown(v.pipe(v.object(keyFields), v.metadata({ ref: 'Key' })), KEY)

export const KeyWithSecret = shown(
  v.pipe(
    v.object({
      ...keyFields,
      secret: described(
        v.string(),
        'Credential of the key. It is shown only once, because only its hash is stored.',
      ),
    }),
    v.metadata({ ref: 'KeyWithSecret' }),
  ),
  { ...KEY, secret: 'rfsk_Zr8Np3cYd6UgQa1f.…' },
)

export const KeyPage = shown(v.object({ keys: v.array(Key), next_cursor: NextCursor }), {
  keys: [KEY],
  next_cursor: null,
})

export const IssuedToken = shown(
  v.object({
    token: described(v.string(), 'PASETO v4.public, for the player’s session.'),
    claims: v.pipe(
      v.object({
        project_id: v.string(),
        issued_at: time('Start of its validity.'),
        expires_at: time('End of its validity.'),
        key_id: v.optional(v.string()),
        aud: v.optional(v.string()),
        sub: v.optional(v.string()),
        data: v.optional(v.record(v.string(), v.unknown())),
        rooms: v.optional(v.array(v.string())),
        traceparent: described(v.optional(v.string()), 'Trace of this request, if it is recorded.'),
        tracestate: described(
          v.optional(v.string()),
          'tracestate of the caller for that trace, if it is valid.',
        ),
      }),
      v.metadata({ ref: 'TokenClaims' }),
    ),
  }),
  {
    token: 'v4.public.eyJwcm9qZWN0X2lkIjoi…',
    claims: {
      project_id: PROJECT_ID,
      issued_at: AT.minute,
      expires_at: AT.hour,
      key_id: KEY_ID,
      sub: 'alice',
      data: { rank: 12 },
      rooms: ['duel'],
    },
  },
)

const banFields = {
  until: described(v.nullable(v.string()), 'End of the ban. null: it does not end.'),
  room_types: described(v.nullable(v.array(v.string())), 'Room types of the ban. null: all.'),
  reason: described(v.nullable(v.string()), 'Text for the player.'),
}

const BAN = { until: AT.hour, room_types: ['duel'], reason: 'cheating' }

export const Player = shown(
  v.pipe(
    v.object({
      project_id: v.string(),
      sub: v.string(),
      revoked_at: described(v.nullable(v.string()), 'Tokens that were issued up to this time are refused.'),
      ban: v.nullable(v.object(banFields)),
      data: described(
        v.nullable(v.record(v.string(), v.unknown())),
        'Used instead of the claim data of tokens. null: there is none.',
      ),
    }),
    v.metadata({ ref: 'Player' }),
  ),
  { project_id: PROJECT_ID, sub: 'alice', revoked_at: null, ban: BAN, data: { rank: 12 } },
)

export const BanPage = shown(
  v.object({
    bans: v.array(v.pipe(v.object({ sub: v.string(), ...banFields }), v.metadata({ ref: 'Ban' }))),
    next_cursor: NextCursor,
  }),
  { bans: [{ sub: 'alice', ...BAN }], next_cursor: null },
)

export const KeyStatusAnswer = shown(
  v.object({
    project_id: v.string(),
    key_id: described(v.nullable(v.string()), 'null: the built-in pair.'),
    exists: v.boolean(),
    status: described(v.nullable(Status), 'null when it does not exist.'),
    revoked: v.boolean(),
    revoked_at: v.nullable(v.string()),
    scopes: v.array(v.string()),
    public_key: described(v.nullable(v.string()), 'PASERK k4.public. null: the key does not exist.'),
    project_disabled: described(v.boolean(), 'true: the project accepts no players.'),
  }),
  {
    project_id: PROJECT_ID,
    key_id: KEY_ID,
    exists: true,
    status: 'active',
    revoked: false,
    revoked_at: null,
    scopes: [MINT_SCOPE],
    public_key: 'k4.public.Hq2…',
    project_disabled: false,
  },
)

export const SetLogLevel = shown(
  v.object({
    level: v.pipe(
      v.picklist(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(', ')}`),
      v.description('The least important lines that are logged.'),
    ),
  }),
  { level: 'debug' },
)

export const Health = shown(v.object({ status: v.string() }), { status: 'ready' })

export const ProblemDocument = v.pipe(
  v.object({
    type: v.string(),
    title: v.string(),
    status: v.number(),
    code: v.picklist(Object.keys(CONTROL_PROBLEMS) as (keyof typeof CONTROL_PROBLEMS)[]),
    detail: v.string(),
    request_id: v.string(),
    errors: v.optional(v.array(v.object({ path: v.string(), message: v.string() }))),
  }),
  v.metadata({ ref: 'Problem' }),
)
