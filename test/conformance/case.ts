import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { callControl } from '../support/calls.ts'
import { CODECS, type Codec } from './messages.ts'
import { Bell, Failure, Peer, type PeerOptions, Session } from './peer.ts'
import type { RoomView } from './room-view.ts'

/** One thing that docs/protocol.md promises. */
export interface Case {
  /** `topic: what happens`. */
  readonly name: string
  /** Rule or section of the page that promises it. */
  readonly rule: string
  /**
   * `waits`: spends its time waiting for something that takes seconds, so it runs beside others. `outlasts`: waits for
   * a whole `resume_ttl_seconds`, which may be long.
   */
  readonly kind: 'quick' | 'waits' | 'outlasts'
  readonly run: (stage: Stage) => Promise<void>
}

type Run = (stage: Stage) => Promise<void>
type RunIn = (stage: Stage, codec: Codec) => Promise<void>

/** Collects the cases of one topic. */
export class Topic {
  readonly cases: Case[] = []
  private readonly topic: string

  constructor(topic: string) {
    this.topic = topic
  }

  /** One case. */
  once(name: string, rule: string, run: Run): void {
    this.add(name, rule, 'quick', run)
  }

  /** One case that takes seconds. */
  waiting(name: string, rule: string, run: Run): void {
    this.add(name, rule, 'waits', run)
  }

  /** One case that takes longer than a session without a connection lives. */
  outlasting(name: string, rule: string, run: Run): void {
    this.add(name, rule, 'outlasts', run)
  }

  /** The same case in each subprotocol. */
  each(name: string, rule: string, run: RunIn): void {
    for (const codec of CODECS) this.add(`${name} (${codec})`, rule, 'quick', (stage) => run(stage, codec))
  }

  private add(name: string, rule: string, kind: Case['kind'], run: Run): void {
    this.cases.push({ name: `${this.topic}: ${name}`, rule, kind, run })
  }
}

/** The codes of docs/protocol.md. */

const page = readFileSync(new URL('../../docs/protocol.md', import.meta.url), 'utf8')
const [, errors = ''] = page.split('\n### Error codes\n')
const [lasting = '', passing = ''] = errors.split('\n### ')[0]!.split('\nRetryable:\n')

const namesIn = (list: string): string[] => [...list.matchAll(/^- `(\w+)`:/gm)].map(([, code]) => code!)

/** Error code → retryable. */
export const ERROR_CODES: Readonly<Record<string, boolean>> = Object.fromEntries([
  ...namesIn(lasting).map((code) => [code, false]),
  ...namesIn(passing).map((code) => [code, true]),
])

/** The codes a connection may be closed with, by a name that says why. */
export const CLOSE = {
  goodbye: 1000,
  no_room_for_more: 1013,
  protocol_error: 4000,
  unauthenticated: 4001,
  revoked: 4003,
  taken_over: 4005,
  rate_limited: 4006,
  too_large: 4008,
  draining: 4101,
  room_unavailable: 4102,
  slow_reader: 4103,
  hello_timeout: 4104,
  token_expired: 4200,
  resume_failed: 4300,
} as const

/** The number of a counter. */
export const counted = (view: RoomView): number => (view.state as { count: number }).count

/** Two clients in one room. */
export interface Pair {
  peer: Peer
  view: RoomView
  other: Peer
  witness: RoomView
  room_id: string
}

/** A client in `codec` and a JSON witness, both at the same seq of a new room. */
export async function pair(stage: Stage, codec: Codec, roomType = 'counter'): Promise<Pair> {
  const key = stage.key()
  const peer = await stage.connect(codec, { sub: 'anna' })
  const other = await stage.connect('json', { sub: 'ben' })
  const view = await peer.join(roomType, key)
  const witness = await other.join(roomType, key)
  await peer.until('both stand at one seq', () => view.seq === witness.seq)
  return { peer, view, other, witness, room_id: view.roomId }
}

/** The service under test. */
export interface Target {
  readonly ws_url: string
  readonly control: Control
  readonly project_id: string
  /** Of the random inputs, so that a failure can be repeated. */
  readonly seed: number
}

/** What one case works with. Everything it opens is closed, and looked through for faults, when the case ends. */
export class Stage {
  readonly target: Target
  private readonly peers: Peer[] = []
  private readonly bell = new Bell()

  constructor(target: Target) {
    this.target = target
  }

  get control(): Control {
    return this.target.control
  }

  /** A room key that no one else uses. */
  key(): string {
    return `k-${randomUUID().slice(0, 13)}`
  }

  async token(request: TokenRequest = {}): Promise<string> {
    const { token } = await this.control.issueToken(this.target.project_id, request)
    return token
  }

  /** A connection on which nothing has been sent. */
  async open(codec: Codec, options: PeerOptions = {}, session?: Session): Promise<Peer> {
    const peer = await Peer.open(
      this.target.ws_url,
      session ?? new Session(this.target.project_id, codec),
      this.bell,
      options,
    )
    this.peers.push(peer)
    return peer
  }

  /** As `open`, for a client of another project. */
  openFor(projectId: string, codec: Codec): Promise<Peer> {
    return this.open(codec, {}, new Session(projectId, codec))
  }

  /** A client with a session of its own. */
  async connect(codec: Codec, request: TokenRequest = {}, options: PeerOptions = {}): Promise<Peer> {
    return this.greet(await this.open(codec, options), await this.token(request))
  }

  /** Says hello with `token` and waits for the welcome. */
  async greet(peer: Peer, token: string): Promise<Peer> {
    const { projectId, features } = peer.session
    peer.send({ t: 'hello', project_id: projectId, token, ...(features.length > 0 && { features }) })
    const welcome = await peer.expect('welcome')
    if (welcome.resumed) peer.fail('a new session is welcomed as resumed')
    return peer
  }

  /** Takes the session of `peer` up on a new connection; what `peer` still gets is not the session's any more. */
  async resume(peer: Peer, options: PeerOptions = {}): Promise<Peer> {
    const next = await this.askToResume(peer, options)
    const welcome = await next.expect('welcome')
    if (!welcome.resumed) next.fail('a resume is welcomed as a new session')
    await next.roundTrip()
    return next
  }

  /** As `resume`, without waiting for what the server answers. */
  async askToResume(peer: Peer, options: PeerOptions = {}): Promise<Peer> {
    const next = await this.open(peer.session.codec, options, peer.session)
    peer.detached = true
    next.send(peer.session.resumption())
    return next
  }

  /** Sends again what a client keeps, as it does behind the welcome of a resume. */
  resend(peer: Peer): void {
    for (const message of peer.session.kept.values()) peer.send(message)
  }

  /** Says goodbye on every connection; throws what clients saw that no conforming server sends. */
  async end(): Promise<void> {
    await Promise.all(this.peers.map((peer) => peer.goodbye()))
    for (const peer of this.peers) {
      const fault = peer.session.firstFault()
      if (fault !== undefined) peer.fail(fault)
    }
  }

  /** Drops every connection of a case that has failed; gives why it did, with what its clients saw. */
  abandon(thrown: unknown): Failure {
    const recent = this.peers.slice(0, 4).map((peer) => peer.recent())
    for (const peer of this.peers) peer.cut()
    if (thrown instanceof Failure) return thrown
    const { message, stack = '' } = thrown instanceof Error ? thrown : new Error(String(thrown))
    const place = stack.match(/cases\/[\w-]+\.ts:\d+/)?.[0] ?? 'somewhere'
    return new Failure([`${message} (${place})`, ...recent].join('\n'), { cause: thrown })
  }
}

/** What a project key or an anonymous call may ask of a token; see contract and OpenAPI of the control API. */
interface TokenRequest {
  key_id?: string
  ttl_seconds?: number
  sub?: string
  rooms?: string[]
}

interface IssuedToken {
  token: string
  claims: { expires_at: string }
}

/** The calls of the control API that this suite needs. */
export class Control {
  private readonly url: string
  private readonly headers: Readonly<Record<string, string>>

  constructor(url: string, operatorToken?: string) {
    this.url = url.replace(/\/+$/, '')
    this.headers = operatorToken === undefined ? {} : { authorization: `Bearer ${operatorToken}` }
  }

  async createProject(): Promise<string> {
    const { id } = await this.post<{ id: string }>('/projects', { name: 'conformance' })
    return id
  }

  async createKey(projectId: string): Promise<string> {
    const { id } = await this.post<{ id: string }>(`/projects/${projectId}/keys`, {})
    return id
  }

  revokeKey(projectId: string, keyId: string): Promise<unknown> {
    return this.post(`/projects/${projectId}/keys/${keyId}/revoke`)
  }

  rotateKey(projectId: string, keyId: string, graceSeconds: number): Promise<unknown> {
    return this.post(`/projects/${projectId}/keys/${keyId}/rotate`, { grace_seconds: graceSeconds })
  }

  issueToken(projectId: string, request: TokenRequest = {}): Promise<IssuedToken> {
    return this.post('/tokens', { project_id: projectId, ...request })
  }

  private post<T>(path: string, body?: object): Promise<T> {
    return callControl(this.url, 'POST', path, body, this.headers) as Promise<T>
  }
}
