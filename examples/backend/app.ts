import { createHmac, timingSafeEqual } from 'node:crypto'
import { type Context, Hono } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import * as v from 'valibot'
import type { Logger } from '../../shared/log.ts'
import { namesThisMachine } from '../../shared/origins.ts'
import { ControlError, type OwnProject, type TraceHeaders } from './control-client.ts'
import { type ClusterView, clusterView, type Nodes } from './nodes.ts'
import {
  asset,
  type Bundles,
  frontModule,
  GAMES,
  pageModule,
  roomSource,
  roomTypesOf,
  sourcePage,
} from './pages.ts'
import { Wins } from './wins.ts'

/** A player of this backend. There are no accounts: each browser tab is a player. */
export interface Player {
  /** Player id, used as `sub` of the token: an optional name, `~`, and random characters. */
  player_id: string
  /** Signature of the player id. With it, the same tab can log in as the same player again. */
  ticket: string
}

/** Issues and verifies player ids. */
export class Players {
  readonly #secret: Uint8Array
  readonly #newId: () => string

  /** `secret` signs tickets; `newId` returns the random part of an id. */
  constructor(secret: Uint8Array, newId: () => string) {
    this.#secret = secret
    this.#newId = newId
  }

  /** Creates a player; other players see `name` (letters, digits, spaces, 1–20). */
  welcome(name: string | undefined): Player {
    const playerId = `${name ?? ''}~${this.#newId()}`
    return { player_id: playerId, ticket: this.#sign(playerId).toString('base64url') }
  }

  /** Returns true if this backend issued `ticket` for `player_id`. */
  knows({ player_id: playerId, ticket }: Player): boolean {
    const signature = Buffer.from(ticket, 'base64url')
    const expected = this.#sign(playerId)
    return signature.length === expected.length && timingSafeEqual(signature, expected)
  }

  #sign(playerId: string): Buffer {
    return createHmac('sha256', this.#secret).update(playerId).digest()
  }
}

const TOKEN_TTL_SECONDS = 300

const SessionRequest = v.strictObject({
  game: v.picklist(GAMES, `game must be one of ${GAMES.join(', ')}`),
  name: v.optional(
    v.pipe(
      v.string(),
      v.trim(),
      v.regex(/^[\p{L}\p{N} _.-]{1,20}$/u, 'name must be 1–20 letters, digits, spaces or _ . -'),
    ),
  ),
  player: v.optional(v.strictObject({ player_id: v.string(), ticket: v.string() })),
})

const OverRequest = v.strictObject({ key: v.pipe(v.string(), v.minLength(1), v.maxLength(128)) })

interface AppParts {
  project: OwnProject
  players: Players
  bundles: Bundles
  /** Nodes that the pages show. Default: none. */
  nodes?: Nodes | undefined
  /** Address of the data plane for browsers. */
  ws_url: string
  /** True: logins are accepted only if the request's host is this machine, such as `localhost`. */
  local: boolean
  /** Hosts of `roomful dev --lan`. */
  lanHosts?: ReadonlySet<string>
  log: Logger
}

/** Returns a problem document, in the format of the control API. */
function problem(
  c: Context,
  status: 400 | 403 | 404 | 413 | 500 | 502 | 503,
  code: string,
  detail: string,
): Response {
  c.header('content-type', 'application/problem+json')
  return c.body(JSON.stringify({ status, code, detail }), status)
}

/** Trace headers of the caller. The backend forwards them to the control API, so one trace shows the login and the join. */
function traceOf(headers: Headers): TraceHeaders {
  const trace: TraceHeaders = {}
  for (const name of ['traceparent', 'tracestate'] as const) {
    const value = headers.get(name)
    if (value !== null) trace[name] = value
  }
  return trace
}

/** Returns `ws_url`. If `ws_url` names the local machine, its host is replaced by the host that the browser used. */
function reachable(wsUrl: string, pageUrl: string): string {
  const address = new URL(wsUrl)
  if (!['localhost', '127.0.0.1', '[::1]', '0.0.0.0', '[::]'].includes(address.hostname)) return wsUrl
  address.hostname = new URL(pageUrl).hostname
  return address.href.replace(/\/$/, '')
}

/** Content security policy: pages load only their files and connect to the data plane. */
const policy = (wsUrl: string) =>
  [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    `connect-src 'self' ${wsUrl}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ')

/** The game backend as a web app: pages, scripts, room sources, the login `POST /api/session`, and `GET /api/cluster`. */
export function createApp(parts: AppParts): Hono {
  const { project, players, bundles, nodes, local, lanHosts = new Set(), log } = parts
  const app = new Hono()
  const wins = new Wins(project)
  const wsUrlOf = (c: Context): string => {
    const { host } = new URL(c.req.url)
    return lanHosts.has(host) ? `ws://${host}` : reachable(parts.ws_url, c.req.url)
  }

  app.use(async (c, next) => {
    await next()
    c.header('content-security-policy', policy(wsUrlOf(c)))
    c.header('x-content-type-options', 'nosniff')
    c.header('referrer-policy', 'no-referrer')
    c.header('cache-control', c.req.path.startsWith('/api/') ? 'no-store' : 'no-cache')
  })

  const file = (c: Context, type: string, text: string) => {
    c.header('content-type', `${type}; charset=utf-8`)
    return c.body(text)
  }

  /** Returns a page: the common head, then the file of the page, whose first line is the title. */
  const page = async (c: Context, rest: string) =>
    c.html(`<!doctype html>\n<html lang="en">\n${await asset('head.html')}${rest}</html>\n`)

  app.get('/', async (c) => page(c, await asset('index.html')))
  for (const sheet of ['site.css', 'front.css', 'source.css'])
    app.get(`/${sheet}`, async (c) => file(c, 'text/css', await asset(sheet)))
  app.get('/favicon.svg', async (c) => file(c, 'image/svg+xml', await asset('favicon.svg')))
  app.get('/front.js', async (c) => file(c, 'text/javascript', await bundles.script(frontModule())))
  app.get('/healthz', (c) => c.json({ status: 'ok' }))

  for (const game of GAMES) {
    app.get(`/${game}`, (c) => c.redirect(`/${game}/${new URL(c.req.url).search}`))
    app.get(`/${game}/`, async (c) => page(c, await asset(`${game}/index.html`)))
    app.get(`/${game}/page.js`, async (c) =>
      file(c, 'text/javascript', await bundles.script(pageModule(game))),
    )
    app.get(`/${game}/page.css`, async (c) => file(c, 'text/css', await asset(`${game}/page.css`)))
    app.get(`/${game}/picture.svg`, async (c) => file(c, 'image/svg+xml', await asset(`${game}/picture.svg`)))
    app.get(`/${game}/room.ts`, async (c) => file(c, 'text/plain', await roomSource(game)))
    app.get(`/${game}/source`, async (c) => page(c, String(sourcePage(game, await roomSource(game)))))
  }

  app.use(
    '/api/*',
    bodyLimit({ maxSize: 4096, onError: (c) => problem(c, 413, 'payload_too_large', 'at most 4096 bytes') }),
  )

  /** Adds a route for pages. `example`: a valid body. */
  const post = <S extends v.GenericSchema>(
    path: string,
    schema: S,
    example: string,
    handle: (c: Context, body: v.InferOutput<S>) => Promise<Response>,
  ) =>
    app.post(path, async (c) => {
      // Protects from DNS rebinding: another site may have let its name point to this machine.
      const host = c.req.header('host') ?? ''
      if (local && !namesThisMachine(host) && !lanHosts.has(host))
        return problem(c, 403, 'host_not_allowed', 'ask this machine by its own name, such as localhost')
      const request = v.safeParse(schema, await c.req.json().catch(() => undefined))
      if (request.success) return handle(c, request.output)
      const [issue] = request.issues
      const at = v.getDotPath(issue)
      const detail = at ? `${at}: ${issue.message}` : `the body must be a JSON object such as ${example}`
      return problem(c, 400, 'invalid_request', detail)
    })

  // The login of the games. A real backend authenticates the player here.
  post('/api/session', SessionRequest, '{"game": "arena"}', async (c, { game, name, player: claimed }) => {
    const player = claimed && players.knows(claimed) ? claimed : players.welcome(name)
    const { project_id: projectId, token } = await project.issueToken(
      {
        sub: player.player_id,
        rooms: roomTypesOf(game),
        ttl_seconds: TOKEN_TTL_SECONDS,
        ...(game === 'cards' && { data: { wins: wins.of(player.player_id) } }),
      },
      traceOf(c.req.raw.headers),
    )
    return c.json({ project_id: projectId, token, ws_url: wsUrlOf(c), player })
  })

  // A game at this table of Crazy Eights is over.
  post('/api/over', OverRequest, '{"key": "lobby-1"}', async (c, { key }) => {
    await wins.look(key)
    return c.body(null, 204)
  })

  // Browsers cannot query the nodes, because a query needs the internal token.
  app.get('/api/cluster', async (c) => {
    const nothing: ClusterView = { nodes: [], room: null }
    if (!nodes) return c.json(nothing)
    const { project_id: projectId } = await project.credentials()
    return c.json(await clusterView(nodes, projectId, c.req.query('room_id')))
  })

  app.notFound((c) => problem(c, 404, 'not_found', `${c.req.path} does not exist: the games are at /`))
  app.onError((error, c) => {
    if (error instanceof ControlError) {
      log.warn({ code: error.code }, error.message)
      const retryable = error.status === 0 || error.status === 429 || error.status === 503
      if (retryable) c.header('retry-after', '2')
      return problem(c, retryable ? 503 : 502, `control_${error.code}`, error.message)
    }
    log.error({ err: error }, 'request failed')
    return problem(c, 500, 'internal_error', 'the backend failed: see its log')
  })

  return app
}
