import type { IncomingMessage, ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import * as v from 'valibot'
import type { NoticeBody, PostNotice } from '../../dataplane/features/notices/notice.ts'
import { loadPage, type Page } from '../../dataplane/ops/admin-page.ts'
import { NO_DATA, type RoomDefinition } from '../../dataplane/room/definition.ts'
import { jsonSchemaOf } from '../../dataplane/room/json-schema.ts'
import { type BackendOptions, roomful } from '../../server/index.ts'
import { isWellFormed, type Json, type JsonObject } from '../../shared/json.ts'
import type { Logger } from '../../shared/log.ts'
import { isLoopback, isOriginHere, namesThisMachine } from '../../shared/origins.ts'
import { dataFault, MAX_SUB_LENGTH, subFault } from '../../shared/tokens.ts'

/** The part of JSON Schema that the forms use. */
export interface JsonSchema {
  readonly type?: string
  readonly enum?: readonly Json[]
  readonly const?: Json
  readonly default?: Json
  readonly properties?: { readonly [name: string]: JsonSchema }
  readonly required?: readonly string[]
  readonly minimum?: number
  readonly maximum?: number
  readonly maxLength?: number
}

/** A room type for the playground. Schemas are absent if the type has none, or if its library cannot export them. */
export interface RoomToPlay {
  readonly type: string
  readonly options?: JsonSchema | undefined
  /** True if players can list its rooms. */
  readonly listed: boolean
  /** True if players can watch its rooms. */
  readonly watched: boolean
  readonly messages: readonly MessageToSend[]
  readonly calls: readonly MessageToSend[]
  /** True if the room sends notices. */
  readonly notifies: boolean
}

/** A message type, or a call. */
export interface MessageToSend {
  readonly name: string
  readonly data?: JsonSchema | undefined
  /** True if it has a reply. */
  readonly replies: boolean
}

/** A notice that the node has tried to deliver. */
export interface ShownNotice {
  readonly id: string
  /** `type:key`. */
  readonly room_id: string
  readonly type: string
  readonly data: Json
  /** Answer of the backend to the last attempt, or the reason why there was none. */
  readonly answer: string
}

/** A call from a backend to a room. */
export interface DevCall {
  /** `type:key`. */
  readonly room: string
  readonly name: string
  readonly data: Json
}

/** Response of `GET /dev/rooms`. */
export interface RoomsToPlay {
  readonly ws_url: string
  /** True if the page may kill the owner of a room. */
  readonly kills: boolean
  readonly rooms: readonly RoomToPlay[]
}

/** A player of `connect({ dev })`, of the playground and of the test kit. */
export interface DevPlayer {
  readonly sub: string
  readonly data?: JsonObject
}

/** Issues a client token for a player. Rejects with an Error whose message has the reason. */
export type Issue = (player: DevPlayer) => Promise<{ readonly project_id: string; readonly token: string }>

/** Dependencies of the development routes. */
interface DevRoutes {
  readonly issue: Issue
  readonly rooms: () => readonly RoomDefinition[] | Promise<readonly RoomDefinition[]>
  /** Address of the websocket. */
  readonly wsUrl: () => string
  /**
   * Kills the owner of a room (`type:key`) like a power failure, or drains it. Resolves with a description of the result. Absent: there is
   * no other node.
   */
  readonly end?: (how: 'kill' | 'drain', roomId: string) => Promise<string>
  /** Runs a call of a room like a backend. Resolves with the reply. Rejects with an Error whose message has the reason. */
  readonly call: (call: DevCall) => Promise<Json>
  /** Latest notices of all rooms, the newest first. */
  readonly notices: () => readonly ShownNotice[]
  /** Sends the notices that nodes in other processes post here. Absent: the node of this process sends them. */
  readonly postNotice?: PostNotice
  readonly log: Logger
}

/** Lifetime of tokens for development. */
export const DEV_TOKEN_SECONDS = 3600
/** Maximum size of a request, in bytes. `data` of a player has at most 2 KiB of JSON. */
const MAX_BODY = 8192
const PLAYGROUND = new URL('../playground/', import.meta.url)
/** Content security policy of the page: it may connect to nodes of this machine on any port. */
const CONNECT = "'self' ws://localhost:* ws://127.0.0.1:*"

type Handler = (request: IncomingMessage, response: ServerResponse, query: URLSearchParams) => Promise<void>

/**
 * Routes of `roomful dev` and `npm run cluster`, which no deployment has. They answer only pages and programs of this machine, and reject
 * requests of other machines and of their pages. The function returns false if no route has the path. `routes` lists them.
 * - `POST /dev/token` with `{ "sub": "alice", "data": { … } }`: `{ project_id, token }`
 * - `GET /dev/rooms`: the room types with the schemas of their messages
 * - `GET /playground`: a page to play any room by hand
 * - `POST /dev/call` with `{ "room": "type:key", "name": "…", "data": … }`: `{ reply }`
 * - `GET /dev/notices?room=type:key`: the latest notices
 * - `POST /dev/notices`: a notice of a node in another process, on its way to the backend
 * - `POST /dev/kill?room=type:key` and `POST /dev/drain?room=type:key`
 */
export function devRoutes({ issue, rooms, wsUrl, end, call, notices, postNotice, log }: DevRoutes) {
  let page: Promise<Page> | undefined
  const routes: Record<string, Handler> = {
    'POST /dev/token': async (request, response) => {
      const asked = await readSignIn(request)
      if (typeof asked === 'string') answer(response, 400, { detail: asked })
      else answer(response, 200, await issue(asked.player))
    },
    'GET /dev/rooms': async (_, response) => {
      const all: RoomsToPlay = {
        ws_url: wsUrl(),
        kills: end !== undefined,
        rooms: (await rooms()).map(describe),
      }
      answer(response, 200, all)
    },
    'POST /dev/call': async (request, response) => {
      const asked = await readBody(request, Call, '{"room":"duel:table-7","name":"end","data":null}')
      if (typeof asked === 'string') return answer(response, 400, { detail: asked })
      await call(asked as DevCall).then(
        (reply) => answer(response, 200, { reply }),
        (error: Error) => answer(response, 422, { detail: error.message }),
      )
    },
    'GET /dev/notices': async (_, response, query) =>
      answer(response, 200, {
        notices: notices().filter(({ room_id: room }) => room === query.get('room')),
      }),
    ...(postNotice && {
      'POST /dev/notices': (request, response) => passNotice(request, response, postNotice),
    }),
    'GET /playground': async (_, response) => {
      page ??= loadPage(PLAYGROUND, { title: 'roomful playground', connect: CONNECT })
      const { html, headers } = await page
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8', ...headers })
      response.end(html)
    },
    ...(end && {
      'POST /dev/kill': async (_, response, query) =>
        answer(response, 200, { detail: await end('kill', query.get('room') ?? '') }),
      'POST /dev/drain': async (_, response, query) =>
        answer(response, 200, { detail: await end('drain', query.get('room') ?? '') }),
    }),
  }

  const answerFrom = (request: IncomingMessage, response: ServerResponse): boolean => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://localhost')
    const handler = routes[`${request.method} ${pathname}`]
    if (!handler) return false
    const { origin } = request.headers
    if (!isLocal(request)) {
      const detail = `this is for development, on this machine alone: ask as http://localhost:…${pathname}, from a page of localhost`
      answer(response, 403, { detail })
      return true
    }
    if (origin !== undefined) response.setHeader('access-control-allow-origin', origin)
    handler(request, response, searchParams).catch((error: Error) => {
      log.error({ err: error, path: pathname }, 'a request failed')
      answer(response, 503, { detail: error.message })
    })
    return true
  }
  return Object.assign(answerFrom, { routes: Object.keys(routes) })
}

/**
 * Returns true if the request comes from this machine, to a name of this machine, and not from a page of another machine. The name is
 * checked because of DNS rebinding: the host name of a foreign page may resolve to this address.
 */
const isLocal = ({ socket, headers: { host = '', origin } }: IncomingMessage): boolean =>
  isLoopback(socket.remoteAddress ?? '') &&
  namesThisMachine(host) &&
  (origin === undefined || isOriginHere(origin))

const SignIn = v.strictObject({
  sub: v.pipe(
    v.string(),
    v.check(
      (sub) => sub !== '' && [...sub].length <= MAX_SUB_LENGTH && isWellFormed(sub),
      `must have 1 to ${MAX_SUB_LENGTH} characters`,
    ),
    v.rawCheck(({ dataset, addIssue }) => {
      const message = dataset.typed ? subFault(dataset.value) : undefined
      if (message !== undefined) addIssue({ message })
    }),
  ),
  data: v.exactOptional(
    v.pipe(
      v.custom<JsonObject>(() => true),
      v.rawCheck(({ dataset, addIssue }) => {
        const message = dataFault(dataset.value)
        if (message !== undefined) addIssue({ message })
      }),
    ),
  ),
  lan: v.exactOptional(v.string()),
})

/** Sends a notice of a node with `post`, and answers the node like the backend. */
async function passNotice(
  request: IncomingMessage,
  response: ServerResponse,
  post: PostNotice,
): Promise<void> {
  const body = await text(request)
  const { project_id: projectId } = JSON.parse(body) as NoticeBody
  const gone = new AbortController()
  response.on('close', () => gone.abort())
  await post({ id: String(request.headers['webhook-id']), projectId, body }, gone.signal).then(
    ({ status, retryAfterMs = 0 }) => {
      if (retryAfterMs > 0) response.setHeader('retry-after', Math.ceil(retryAfterMs / 1000))
      response.writeHead(status).end()
    },
    // As a proxy whose backend cannot be reached.
    (error: Error) => answer(response, 502, { detail: error.message }),
  )
}

/** Runs a call of a room over the control API. Rejects with a RoomfulError. */
export async function callRoom(backend: BackendOptions, { room, name, data }: DevCall): Promise<Json> {
  const [type = '', ...key] = room.split(':')
  return (await roomful(backend).room(type, key.join(':')).call(name, data)) as Json
}

const Call = v.strictObject({ room: v.string(), name: v.string(), data: v.optional(v.unknown(), null) })

/** Reads the body of `POST /dev/token`. `lan` is the secret of `--lan`. A string says what is wrong. */
export async function readSignIn(
  request: AsyncIterable<Buffer>,
): Promise<{ readonly player: DevPlayer; readonly lan: string | undefined } | string> {
  const read = await readBody(request, SignIn, '{"sub":"ada","data":{"elo":1200}}')
  if (typeof read === 'string') return read
  const { lan, ...player } = read
  return { player, lan }
}

/** Reads a JSON object, such as `example`. A string says what is wrong. */
async function readBody<S extends typeof SignIn | typeof Call>(
  request: AsyncIterable<Buffer>,
  schema: S,
  example: string,
): Promise<v.InferOutput<S> | string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request) {
    bytes += chunk.length
    if (bytes > MAX_BODY) return `the body has more than ${MAX_BODY} bytes`
    chunks.push(chunk)
  }
  const text = Buffer.concat(chunks).toString()
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), schema), text)
  if (parsed.success) return parsed.output as v.InferOutput<S>
  const [issue] = parsed.issues
  const path = v.getDotPath(issue)
  return path === null
    ? `the body is ${JSON.stringify(text.slice(0, 100))}: send a JSON object such as ${example}`
    : `${path} is ${JSON.stringify(issue.path?.at(-1)?.value)?.slice(0, 100)}: ${issue.message}`
}

export function answer(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' })
  response.end(JSON.stringify(body))
}

function describe(definition: RoomDefinition): RoomToPlay {
  const { type, options, listing, spectators, messages, calls, notices } = definition
  const toSend = (all: RoomDefinition['messages'] | RoomDefinition['calls']): MessageToSend[] =>
    Object.entries(all).map(([name, { data, reply }]) => ({
      name,
      data: data === NO_DATA ? { type: 'null' } : (jsonSchemaOf(data, 'input') as JsonSchema | undefined),
      replies: reply !== undefined,
    }))
  return {
    type,
    options: options && (jsonSchemaOf(options, 'input') as JsonSchema | undefined),
    listed: listing !== undefined,
    watched: spectators !== undefined,
    messages: toSend(messages),
    calls: toSend(calls),
    notifies: Object.keys(notices).length > 0,
  }
}
