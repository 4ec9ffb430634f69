import { hash, timingSafeEqual } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { realpathSync, statSync } from 'node:fs'
import {
  request as ask,
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { networkInterfaces } from 'node:os'
import { isAbsolute, join, relative, sep } from 'node:path'
import type { Duplex } from 'node:stream'
import { renderUnicodeCompact } from 'uqr'
import { LAN_COOKIE, lanSecretIn } from '../../client/lan.ts'
import type { Clock } from '../../shared/clock.ts'
import { closer } from '../../shared/http-server.ts'
import { answer, type Issue, readSignIn } from './dev-routes.ts'

/**
 * `roomful dev --lan`: a server at each address of this machine in its network. Other devices reach the page with its backend, the websocket of
 * the rooms and `POST /dev/token` through it, and nothing else. All of them have one origin, and need the secret of the printed address.
 *
 * The secret is in the fragment of the address, which browsers do not send. A request without it gets a page (`doorPage`) that puts the secret into a
 * cookie and opens the address again. So all requests of the game have it, and the game needs no code for this.
 */

interface LanOptions {
  /** Server of the page, on this machine: `http://localhost:5173`. */
  readonly page: string
  /** Server of the websocket, on this machine. */
  readonly websocket: string
  /** Folder of the page. Paths to other files are refused. */
  readonly root: string
  /** Secret in the fragment of the address. */
  readonly secret: string
  readonly issue: Issue
  readonly clock: Clock
  /** Addresses to listen on. */
  readonly hosts: readonly string[]
}

/** Different wrong secrets of an address, each within a minute after the one before it, that close the address for a minute. */
const WRONG_SECRETS = 10
const MINUTE_MS = 60_000
/** Routes of `roomful dev`, which the server of the example games has, and of Vite, which open editors. */
const THIS_MACHINE_ONLY = /^\/(dev\/|playground$)|\/__/

/** The addresses of this machine in its networks. */
export const lanHosts = (): string[] =>
  Object.values(networkInterfaces())
    .flatMap((list = []) => list)
    .filter(({ family, internal }) => family === 'IPv4' && !internal)
    .map(({ address }) => address)

/** Returns the address with which this machine reaches other networks. Undefined: it has no default route. Sends nothing. */
export function defaultHost(): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = createSocket('udp4')
    const done = (host?: string): void => {
      socket.close()
      resolve(host)
    }
    socket.once('error', () => done())
    // An address for documentation (RFC 5737).
    socket.connect(9, '192.0.2.1', () => done(socket.address().address))
  })
}

/** A running front. */
export interface Lan {
  /** Origin for each address, such as `http://192.168.1.5:5173`. */
  readonly origins: readonly string[]
  close(): Promise<void>
}

/** Starts a server at each of the addresses, with the port of the page if it is free there. */
export async function openLan(options: LanOptions): Promise<Lan> {
  const closers: (() => Promise<void>)[] = []
  const origins: string[] = []
  const door = new Door(options)
  for (const host of options.hosts) {
    const server = createServer()
    closers.push(closer(server))
    await listen(server, Number(new URL(options.page).port), host).catch(() => listen(server, 0, host))
    const origin = `http://${host}:${(server.address() as AddressInfo).port}`
    const front = { ...options, origin, door }
    server.on('request', (request, response) => void respond(request, response, front))
    server.on('upgrade', (request, socket, head) => upgrade(request, socket, head, front))
    origins.push(origin)
  }
  return { origins, close: async () => void (await Promise.all(closers.map((close) => close()))) }
}

const listen = (server: Server, port: number, host: string): Promise<void> =>
  new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, () => {
      server.off('error', reject)
      resolve()
    })
  })

interface Front extends LanOptions {
  readonly origin: string
  readonly door: Door
}

/** Why a device may not enter. */
interface Shut {
  readonly status: 403 | 429
  readonly detail: string
}

const NO_SECRET: Shut = {
  status: 403,
  detail: 'the address of this page has no secret, or that of an earlier start: scan the code again',
}
const TOO_MANY: Shut = {
  status: 429,
  detail: `${WRONG_SECRETS} wrong secrets came from this address: wait a minute, and scan the code again`,
}

/** Checks the secrets of devices. */
class Door {
  readonly #secret: Buffer
  readonly #clock: Clock
  /** Digests of the wrong secrets of each address. A tab of an earlier start sends one secret again and again, which is no guessing. */
  readonly #wrong = new Map<string, { readonly digests: Set<string>; until: number }>()

  constructor({ secret, clock }: Pick<LanOptions, 'secret' | 'clock'>) {
    this.#secret = digestOf(secret)
    this.#clock = clock
  }

  /** Returns why the device at this address may not enter with this secret. Undefined: it may. */
  refusal(address = '', secret: string | undefined): Shut | undefined {
    const now = this.#clock.monotonic()
    const known = this.#wrong.get(address)
    const recent = known && now < known.until ? known.digests : new Set<string>()
    if (recent.size >= WRONG_SECRETS) return TOO_MANY
    if (secret === undefined) return NO_SECRET
    const digest = digestOf(secret)
    // In constant time, whatever the lengths.
    if (timingSafeEqual(digest, this.#secret)) return undefined
    this.#wrong.set(address, { digests: recent.add(digest.toString('base64')), until: now + MINUTE_MS })
    return NO_SECRET
  }
}

const digestOf = (secret: string): Buffer => hash('sha256', secret, 'buffer')

/** Returns what is wrong with the origin of a request. With DNS rebinding, a foreign page has its own name as `host`. */
function foreign({ headers }: IncomingMessage, { origin }: Front): string | undefined {
  if (headers.host !== new URL(origin).host)
    return `the host is ${headers.host}: open ${origin}, the address that roomful dev --lan prints`
  if (headers.origin !== undefined && headers.origin !== origin)
    return `the origin is ${headers.origin}: only pages of ${origin} may ask`
  return undefined
}

async function respond(request: IncomingMessage, response: ServerResponse, front: Front): Promise<void> {
  const fault = foreign(request, front)
  const path = pathOf(request.url ?? '/')
  if (fault !== undefined) return answer(response, 403, { detail: fault })
  if (path === '/dev/token' && request.method === 'POST') return signIn(request, response, front)
  const shut = shutFor(request, front)
  if (shut) return showDoor(request, response, shut)
  if (path === undefined || THIS_MACHINE_ONLY.test(path) || !isInside(path, front.root))
    return answer(response, 403, { detail: `${request.url} is only for the machine of roomful dev` })
  const upstream = forward(request, front.page)
  upstream.on('response', (answered) => {
    response.writeHead(answered.statusCode ?? 502, answered.headers)
    answered.pipe(response)
  })
  upstream.on('error', ({ message }) => {
    if (response.headersSent) response.destroy()
    else answer(response, 502, { detail: `the page does not answer at ${front.page}: ${message}` })
  })
  response.on('close', () => upstream.destroy())
  request.pipe(upstream)
}

async function signIn(
  request: IncomingMessage,
  response: ServerResponse,
  { door, issue }: Front,
): Promise<void> {
  const asked = await readSignIn(request).catch((error: Error) => error.message)
  if (typeof asked === 'string') return answer(response, 400, { detail: asked })
  const shut = door.refusal(request.socket.remoteAddress, asked.lan)
  if (shut) return answer(response, shut.status, { detail: shut.detail })
  await issue(asked.player).then(
    (token) => answer(response, 200, token),
    (error: Error) => answer(response, 503, { detail: error.message }),
  )
}

const shutFor = ({ socket, headers }: IncomingMessage, { door }: Front): Shut | undefined =>
  door.refusal(socket.remoteAddress, lanSecretIn(headers.cookie ?? ''))

/** Answers with a page that opens the address again with the secret of its fragment, or says what is wrong. */
function showDoor({ headers }: IncomingMessage, response: ServerResponse, { status, detail }: Shut): void {
  // The secret of a new visitor comes with the next request, so the console of the game begins without an error.
  const isVisit = status === 403 && headers.accept?.includes('text/html') === true
  response.writeHead(isVisit ? 200 : status, {
    'content-type': 'text/html; charset=utf-8',
    'cache-control': 'no-store',
  })
  response.end(doorPage(detail))
}

const doorPage = (detail: string): string => `<!doctype html>
<html lang="en">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>roomful dev</title>
<link rel="icon" href="data:,">
<style>
p { max-width: 26rem; margin: 20vh auto; padding: 0 1rem; font: 18px/1.5 system-ui }
p::first-letter { text-transform: uppercase }
</style>
<script>
// The event: the tab shows this page, and the new address is entered there.
addEventListener('hashchange', enter)
enter()
function enter() {
  const [, secret] = /#lan=([\\w-]+)/.exec(location.hash) ?? []
  if (!secret) return
  document.cookie = '${LAN_COOKIE}=' + secret + '; path=/; samesite=strict'
  // A browser may write cookies in the background. The read waits for the write, so that the next request has the cookie.
  if (document.cookie.includes(secret)) location.replace(location.pathname + location.search)
}
</script>
<p>${detail}</p>
`

/** Subprotocols of Vite's websocket, which reloads the page. All other sockets are for rooms. */
const OF_PAGE = /\bvite-/
/** Subprotocol with which a page asks whether Vite has started again, to load itself again. The answer has no content. */
const PING = 'vite-ping'

function upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, front: Front): void {
  socket.on('error', () => undefined)
  const protocol = request.headers['sec-websocket-protocol'] ?? ''
  const isOwn = foreign(request, front) === undefined && request.headers.origin === front.origin
  const isAllowed = isOwn && (protocol === PING || shutFor(request, front) === undefined)
  if (!isAllowed || pathOf(request.url ?? '/') === undefined) {
    socket.end('HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 0\r\n\r\n')
    return
  }
  const upstream = forward(request, OF_PAGE.test(protocol) ? front.page : front.websocket)
  upstream.on('upgrade', (answered, other, rest) => {
    const lines = answered.rawHeaders.map((text, i) => (i % 2 === 0 ? `${text}: ` : `${text}\r\n`))
    socket.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join('')}\r\n`)
    socket.write(rest)
    other.write(head)
    other.on('error', () => undefined)
    other.on('close', () => socket.destroy())
    socket.on('close', () => other.destroy())
    other.pipe(socket).pipe(other)
  })
  for (const event of ['response', 'error']) upstream.on(event, () => socket.destroy())
  upstream.end()
}

/** Sends a request on to a server of this machine. Without its origin: that server knows only pages of this machine. */
function forward({ method, headers: { origin: _, ...headers }, url }: IncomingMessage, to: string) {
  const { hostname, port } = new URL(to.replace(/^ws/, 'http'))
  const { pathname, search } = new URL(`http://page${url}`)
  return ask({ host: hostname.replace(/^\[|\]$/g, ''), port, method, headers, path: pathname + search })
}

/** Returns the decoded path of a request. Undefined: it has parts that two programs may read differently. */
function pathOf(url: string): string | undefined {
  try {
    const path = decodeURIComponent(new URL(`http://page${url}`).pathname)
    // A backslash, a second encoding or a step upwards behind the first.
    return /[\\%#?\0]|(^|\/)\.\.(\/|$)/.test(path) ? undefined : path
  } catch {
    return undefined
  }
}

/** Vite's paths for files by their absolute path, and for modules by their id. */
const BY_PATH = /^.*?\/@(fs|id)\/+/
/** Hidden files such as `.env` and `.git`. Libraries of the page are in `node_modules/.vite` and `node_modules/.pnpm`. */
const HIDDEN = /\/\.(?!(vite|pnpm)\/)/
/** Files of a backend: secrets such as `deploy/backend.env`, and databases such as `game.db` with `game.db-wal`. */
const OF_BACKEND = /\.(env|pem|key|db|sqlite3?)(-\w+)?$/i

/** True: the path names no file outside of the folder, no hidden one, and none of a backend. */
function isInside(path: string, root: string): boolean {
  if (HIDDEN.test(path) || OF_BACKEND.test(path)) return false
  const byPath = path.replace(BY_PATH, '/').replace(/^\/(?=[a-z]:)/i, '')
  const file = [...(BY_PATH.test(path) ? [] : [join(root, path)]), byPath].find(isFile)
  if (file === undefined) return true
  const way = relative(realpathSync(root), realpathSync(file))
  return way === '' || !(isAbsolute(way) || way === '..' || way.startsWith(`..${sep}`))
}

const isFile = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isFile() ?? false

/** Returns the addresses for other devices, and the QR code of the first one. `first`: host of the default route. */
export function lanText(origins: readonly string[], secret: string, first: string | undefined): string {
  if (origins.length === 0)
    return '  --lan: this machine has no address in a network. Connect it to one, and start again.\n\n'
  const isFirst = (origin: string): boolean => new URL(origin).hostname === first
  const urls = [...origins]
    .sort((one, other) => Number(isFirst(other)) - Number(isFirst(one)))
    .map((origin) => `${origin}/#lan=${secret}`)
  const code = renderUnicodeCompact(urls[0]!, { border: 2 })
  return `  On another device of your network:\n\n${urls.map((url) => `  ${url}\n`).join('')}\n${code}\n\n`
}
