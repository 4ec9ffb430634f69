import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { callControl } from '../support/calls.ts'
import { CODECS, type Codec } from './messages.ts'
import { Bell, Failure, Peer, type PeerOptions, Session } from './peer.ts'
import type { RoomView } from './room-view.ts'

/** A test of one promise of docs/protocol.md. */
export interface Case {
  /** `topic: behaviour`. */
  readonly name: string
  /** Rule or section of the page. */
  readonly rule: string
  /** `waits`: waits for seconds, and so runs beside other cases. `outlasts`: waits for a whole `resume_ttl_seconds`, which may be long. */
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

  /** Adds a case. */
  once(name: string, rule: string, run: Run): void {
    this.add(name, rule, 'quick', run)
  }

  /** Adds a case that waits for seconds. */
  waiting(name: string, rule: string, run: Run): void {
    this.add(name, rule, 'waits', run)
  }

  /** Adds a case that waits longer than `resume_ttl_seconds`. */
  outlasting(name: string, rule: string, run: Run): void {
    this.add(name, rule, 'outlasts', run)
  }

  /** Adds a case for each subprotocol. */
  each(name: string, rule: string, run: RunIn): void {
    for (const codec of CODECS) this.add(`${name} (${codec})`, rule, 'quick', (stage) => run(stage, codec))
  }

  private add(name: string, rule: string, kind: Case['kind'], run: Run): void {
    this.cases.push({ name: `${this.topic}: ${name}`, rule, kind, run })
  }
}

/** Close codes of the page that the cases expect. */
export const CLOSE = {
  goodbye: 1000,
  try_again: 1013,
  protocol_error: 4000,
  unauthenticated: 4001,
  revoked: 4003,
  taken_over: 4005,
  rate_limited: 4006,
  too_large: 4008,
  hello_timeout: 4104,
  token_expired: 4200,
  resume_failed: 4300,
} as const

/** Most attempts of a client whose hello is refused with 1013, and the time between them. */
const ATTEMPTS = 60
const AGAIN_MS = 1000

/** Returns the number of a counter. */
export const counted = (view: RoomView): number => (view.state as { count: number }).count

/** Two clients in one room. */
export interface Pair {
  peer: Peer
  view: RoomView
  other: Peer
  witness: RoomView
  room_id: string
}

/** Joins a client in `codec` and a witness in JSON to a new room. Resolves when both have the same seq. */
export async function pair(stage: Stage, codec: Codec, roomType = 'counter'): Promise<Pair> {
  const key = stage.key()
  const peer = await stage.connect(codec, { sub: 'anna' })
  const other = await stage.connect('json', { sub: 'ben' })
  const view = await peer.join(roomType, key)
  const witness = await other.join(roomType, key)
  await peer.until('both have one seq', () => view.seq === witness.seq)
  return { peer, view, other, witness, room_id: view.roomId }
}

/** The service under test. */
export interface Target {
  readonly ws_url: string
  readonly control: Control
  readonly project_id: string
  /** Seed of the random inputs. The same seed repeats a failure. */
  readonly seed: number
}

/** Clients of one case. The end of the case closes their connections, and checks their frames for faults. */
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

  /** Returns a new room key. */
  key(): string {
    return `k-${randomUUID().slice(0, 13)}`
  }

  async token(request: TokenRequest = {}): Promise<string> {
    const { token } = await this.control.issueToken(this.target.project_id, request)
    return token
  }

  /** Opens a connection. Sends nothing. */
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

  /** Opens a connection for a client of another project. */
  openFor(projectId: string, codec: Codec): Promise<Peer> {
    return this.open(codec, {}, new Session(projectId, codec))
  }

  /** Connects a client with a new session. */
  async connect(codec: Codec, request: TokenRequest = {}, options: PeerOptions = {}): Promise<Peer> {
    return this.connectWith(codec, await this.token(request), options)
  }

  /** As `connect`, with `token`. */
  async connectWith(codec: Codec, token: string, options: PeerOptions = {}): Promise<Peer> {
    return this.welcomed(await this.sayHello(codec, token, options))
  }

  /** Opens a connection, sends hello with `token`, and waits for any answer. A server limits the connections of a player: after 1013, a client tries again (R5). */
  async sayHello(codec: Codec, token: string, options: PeerOptions = {}): Promise<Peer> {
    for (let attempt = 1; ; attempt++) {
      const peer = await this.open(codec, options)
      this.sendHello(peer, token)
      const isAnswered = () => peer.inbox.length > 0 || peer.ending !== undefined
      await peer.until('the hello is answered', isAnswered, undefined, 'even closed')
      if (peer.ending?.code !== CLOSE.try_again || attempt === ATTEMPTS) return peer
      await sleep(AGAIN_MS)
    }
  }

  /** Sends hello with `token`, and waits for `welcome`. */
  greet(peer: Peer, token: string): Promise<Peer> {
    this.sendHello(peer, token)
    return this.welcomed(peer)
  }

  private sendHello(peer: Peer, token: string): void {
    const { projectId, features } = peer.session
    peer.send({ t: 'hello', project_id: projectId, token, ...(features.length > 0 && { features }) })
  }

  private async welcomed(peer: Peer): Promise<Peer> {
    const welcome = await peer.expect('welcome')
    if (welcome.resumed) peer.fail('a new session is welcomed as resumed')
    return peer
  }

  /** Resumes the session of `peer` on a new connection. Later messages on the old connection do not count for the session. */
  async resume(peer: Peer, options: PeerOptions = {}): Promise<Peer> {
    const next = await this.askToResume(peer, options)
    const welcome = await next.expect('welcome')
    if (!welcome.resumed) next.fail('a resume is welcomed as a new session')
    await next.roundTrip()
    return next
  }

  /** Sends a resume, and does not wait for the answer. */
  async askToResume(peer: Peer, options: PeerOptions = {}): Promise<Peer> {
    const next = await this.open(peer.session.codec, options, peer.session)
    peer.detached = true
    next.send(peer.session.resumption())
    return next
  }

  /** Sends the kept messages again, as a client does after a resume. */
  resend(peer: Peer): void {
    for (const message of peer.session.kept.values()) peer.send(message)
  }

  /** Sends goodbye on each connection. Throws if a client has received anything that the page does not allow. */
  async end(): Promise<void> {
    await Promise.all(this.peers.map((peer) => peer.goodbye()))
    for (const peer of this.peers) {
      const fault = peer.session.firstFault()
      if (fault !== undefined) peer.fail(fault)
    }
  }

  /** Breaks all connections of a failed case. Returns the failure with the last messages of its clients. */
  abandon(thrown: unknown): Failure {
    const recent = this.peers.slice(0, 4).map((peer) => peer.recent())
    for (const peer of this.peers) peer.cut()
    if (thrown instanceof Failure) return thrown
    const { message, stack = '' } = thrown instanceof Error ? thrown : new Error(String(thrown))
    const place = stack.match(/cases\/[\w-]+\.ts:\d+/)?.[0] ?? 'somewhere'
    return new Failure([`${message} (${place})`, ...recent].join('\n'), { cause: thrown })
  }
}

/** Fields of a request for a token. */
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

/** Calls of the control API. */
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
