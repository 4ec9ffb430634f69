import { generateKeyPairSync } from 'node:crypto'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { SignJWT } from 'jose'
import { PublicProtocol } from 'paseto'
import { ExportPublicKeyFactory, GenerateKeyPairFactory } from 'paseto/v4/public'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { expect, vi } from 'vitest'
import type { Watcher } from '../../../dataplane/features/lists/directory.ts'
import { Finding, type FindingEnvironment } from '../../../dataplane/features/lists/finding.ts'
import { LIST_METRICS, type ListMetrics } from '../../../dataplane/features/lists/metrics.ts'
import type { QueryResult, RoomQuery, StoredRow } from '../../../dataplane/features/lists/rows.ts'
import { PlayerBudgets } from '../../../dataplane/gateway/budget.ts'
import {
  type GatewayCluster,
  type GatewayContext,
  type GatewayOptions,
  gatewayOptions,
} from '../../../dataplane/gateway/context.ts'
import { Polling } from '../../../dataplane/gateway/fast-socket.ts'
import { Gateway, type GatewayEnvironment } from '../../../dataplane/gateway/gateway.ts'
import { askControl } from '../../../dataplane/gateway/key-cache.ts'
import { GATEWAY_METRICS } from '../../../dataplane/gateway/metrics.ts'
import { timestamp } from '../../../shared/clock.ts'
import { registerMetrics } from '../../../shared/metrics.ts'
import { type PlayerRecord, playerKey } from '../../../shared/players.ts'
import { CLOSE, type CloseName } from '../../../shared/protocol/error-codes.ts'
import type { ClientMessage, ResumePosition, ServerMessage } from '../../../shared/protocol/messages.ts'
import { systemRandom } from '../../../shared/random.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import type { Records } from '../../../shared/store/port.ts'
import { covers, issueToken, type SigningKey, type TokenClaims } from '../../../shared/tokens.ts'
import { noTracer } from '../../../shared/tracing/tracer.ts'
import { FakeClock } from '../../kit/fake-clock.ts'
import { RawClient, upgraded } from '../raw-client.ts'
import { TestRecords } from '../test-store.ts'
import { TestOwner, testCodecs } from './test-owner.ts'

/** A client's position in a room. Default `member_id`: `mem_own`. Default `settled`: 0, so the client knows no outcome. */
type Position = Pick<ResumePosition, 'room_id' | 'epoch' | 'seq'> & Partial<ResumePosition>

const INTERNAL_TOKEN = 'internal-token-of-the-tests'
const protocol = new PublicProtocol(GenerateKeyPairFactory, ExportPublicKeyFactory)

interface TestKey {
  readonly signing: SigningKey
  readonly publicKey: string
  status: 'active' | 'retiring' | 'revoked'
}

/** Serves `GET /internal/key-status` like control. The projects prj_one and prj_two have the keys key_a and key_b. */
export class TestControl {
  /** Number of requests. */
  asked = 0
  /** Keys of prj_one's login, which `/jwks.json` serves. */
  readonly login = generateKeyPairSync('ed25519')
  /** True: every project is disabled. */
  disabled = false
  /** True: answers 503. */
  down = false
  /** True: answers 401 to every node. */
  refuses = false
  /** Answers wait for this promise. */
  held: Promise<void> | undefined
  /** Resolves at the first request. */
  readonly firstQuestion: Promise<void>
  #heard: () => void = () => {}
  readonly #keys = new Map<string, TestKey>()
  readonly #server: Server

  private constructor() {
    this.firstQuestion = new Promise((resolve) => {
      this.#heard = resolve
    })
    this.#server = createServer(async (request, response) => {
      this.asked += 1
      this.#heard()
      const url = new URL(request.url!, 'http://control')
      if (url.pathname === '/jwks.json') {
        const key = { ...this.login.publicKey.export({ format: 'jwk' }), kid: 'one' }
        response.end(JSON.stringify({ keys: [key] }))
        return
      }
      const name = keyName(url.searchParams.get('project_id')!, url.searchParams.get('key_id') ?? undefined)
      const key = this.#keys.get(name)
      const answer = key
        ? {
            exists: true,
            status: key.status,
            public_key: key.publicKey,
            project_disabled: this.disabled,
          }
        : { exists: false, status: null, public_key: null, project_disabled: this.disabled }
      const down = this.down
      await this.held
      const allowed = !this.refuses && request.headers['x-service-internal-token'] === INTERNAL_TOKEN
      const known = url.pathname === '/internal/key-status'
      response.writeHead(down ? 503 : allowed && known ? 200 : 401, { connection: 'close' })
      response.end(JSON.stringify(answer))
    })
  }

  static async start(): Promise<TestControl> {
    const control = new TestControl()
    await new Promise<void>((resolve) => control.#server.listen(0, '127.0.0.1', resolve))
    await control.addKey('prj_one')
    for (const keyId of ['key_a', 'key_b']) {
      await control.addKey('prj_one', keyId)
      await control.addKey('prj_two', keyId)
    }
    return control
  }

  /** Value of `AUTH_JWKS` for nodes that accept the tokens of the login. */
  get authJwks() {
    const { port } = this.#server.address() as AddressInfo
    const jwks = `http://127.0.0.1:${port}/jwks.json`
    return [{ issuer: 'https://login.example', jwks, audience: 'game', project: 'prj_one', sub: 'sub' }]
  }

  get ask() {
    const { port } = this.#server.address() as AddressInfo
    return askControl({ controlUrl: `http://127.0.0.1:${port}`, internalToken: INTERNAL_TOKEN }, 5000)
  }

  /** Creates a key. Without `keyId`: the project's built-in pair. */
  async addKey(projectId: string, keyId?: string): Promise<void> {
    const pair = await protocol.GenerateKeyPair()
    this.#keys.set(keyName(projectId, keyId), {
      signing: pair.secretKey,
      publicKey: await protocol.ExportPublicKey(pair.publicKey),
      status: 'active',
    })
  }

  removeKeys(): void {
    this.#keys.clear()
  }

  setStatus(status: TestKey['status'], projectId: string, keyId?: string): void {
    this.#keys.get(keyName(projectId, keyId))!.status = status
  }

  /** Returns a token with these claims. `under`: the key that signs it, if it is not the key of the claims. */
  token(claims: TokenClaims, under: { project_id: string; key_id?: string } = claims): Promise<string> {
    return issueToken(this.#keys.get(keyName(under.project_id, under.key_id))!.signing, claims)
  }

  close(): Promise<void> {
    return new Promise((resolve) => this.#server.close(() => resolve()))
  }
}

const keyName = (projectId: string, keyId: string | undefined): string => `${projectId}/${keyId ?? ''}`

/** A cluster without other nodes. `parts` replaces functions. */
const gatewayCluster = (parts: Partial<GatewayCluster> = {}): GatewayCluster & { cordoned: boolean } => ({
  cordoned: false,
  nodes: { isGone: () => false, isDead: async () => false, storeIsBehind: async () => false },
  router: { send: () => {}, seat: () => undefined, forget: () => {} },
  notifyTaken: () => {},
  reroutes: () => false,
  nearerNode: () => undefined,
  ...parts,
})

/** A node without a cluster, lists and placing. `parts` replaces them. */
export const gatewayContext = (
  parts: Partial<GatewayContext> & Pick<GatewayContext, 'clock'>,
): GatewayContext => ({
  nodeId: 'node_test',
  options: gatewayOptions(),
  random: systemRandom,
  log: pino({ level: 'silent' }),
  metrics: registerMetrics(new Registry(), GATEWAY_METRICS),
  tracer: noTracer,
  polling: new Polling(parts.clock, { inputIntervalMs: 0 }),
  budgets: new PlayerBudgets(parts.clock, gatewayOptions()),
  load: { overloaded: false, inputIntervalMs: 0 },
  suspects: { verdict: () => 'pass' },
  cluster: gatewayCluster(),
  matchType: (roomType) => (roomType === 'arena' ? 'duel' : undefined),
  ...parts,
})

/** Changes of a token's claims. Undefined: the token does not have the claim. */
type ClaimChanges = { readonly [claim in keyof TokenClaims]?: TokenClaims[claim] | undefined }

/** Parts that several gateways share. */
interface TestWorld {
  readonly clock: FakeClock
  readonly control: TestControl
  readonly owner: TestOwner
}

/** Parts of a test gateway that replace the default ones. */
type TestParts = Omit<Partial<GatewayEnvironment>, 'cluster' | 'finding' | 'options'> & {
  readonly cluster?: Partial<GatewayCluster>
  readonly directory?: FindingEnvironment['directory']
  readonly placing?: FindingEnvironment['placing']
  readonly maxPlayers?: FindingEnvironment['maxPlayers']
  readonly listMetrics?: ListMetrics
}

/** A gateway on loopback with a key status server and an owner of test rooms. */
export class TestGateway {
  readonly gateway: Gateway
  readonly cluster: ReturnType<typeof gatewayCluster>
  readonly clock: FakeClock
  readonly control: TestControl
  readonly owner: TestOwner
  readonly records: Records
  readonly url: string
  readonly httpUrl: string

  private constructor(
    parts: Pick<
      TestGateway,
      'gateway' | 'cluster' | 'clock' | 'control' | 'owner' | 'records' | 'url' | 'httpUrl'
    >,
  ) {
    this.gateway = parts.gateway
    this.cluster = parts.cluster
    this.clock = parts.clock
    this.control = parts.control
    this.owner = parts.owner
    this.records = parts.records
    this.url = parts.url
    this.httpUrl = parts.httpUrl
  }

  /** `world`: parts that the gateway shares with others. Default: new parts. */
  static async start(
    options: Partial<GatewayOptions> = {},
    {
      cluster: clusterParts,
      directory = { rooms: async () => answerOf([]), watch: () => () => {} },
      placing = { place: () => Promise.reject(new Error('no rooms are placed here')) },
      maxPlayers = () => undefined,
      listMetrics = registerMetrics(new Registry(), LIST_METRICS),
      ...parts
    }: TestParts = {},
    world?: TestWorld,
  ): Promise<TestGateway> {
    const codecs = testCodecs()
    const { clock, control, owner } = world ?? {
      clock: new FakeClock(),
      control: await TestControl.start(),
      owner: new TestOwner(codecs),
    }
    const records = parts.records ?? memoryStore({ clock }).records
    const cluster = gatewayCluster({
      router: { send: owner.send, seat: () => undefined, forget: () => {} },
      ...clusterParts,
    })
    const context = { ...gatewayContext({ clock, cluster }), ...parts }
    const finding = new Finding({
      ...context,
      metrics: listMetrics,
      options: { ...context.options, ...options },
      records,
      directory,
      placing,
      maxPlayers,
    })
    const gateway = new Gateway({
      ...context,
      askKeyStatus: control.ask,
      codecs,
      records,
      // Most test clients are the same player.
      options: {
        maxSessionsPerSub: 0,
        authJwks: control.authJwks,
        ...options,
      },
      finding,
      ...parts,
    })
    owner.deliver = (message) => gateway.edge.receive(message)
    const { port } = await gateway.listen('127.0.0.1', 0)
    const httpUrl = `http://127.0.0.1:${port}`
    const url = httpUrl.replace('http', 'ws')
    return new TestGateway({ gateway, cluster, clock, control, owner, records, url, httpUrl })
  }

  /** Writes the record of a player of prj_one, like control, but sends the gateway no message. */
  async record(record: PlayerRecord, sub = 'ada'): Promise<void> {
    const value = Buffer.from(JSON.stringify(record))
    await this.records.write([{ put: playerKey('prj_one', sub), value }])
  }

  /** As `record`, and sends the message. */
  async decide(record: PlayerRecord, sub = 'ada'): Promise<void> {
    await this.record(record, sub)
    this.gateway.playerChanged('prj_one', sub)
  }

  /** Returns a token of prj_one under key_a. Default lifetime: 5 minutes. */
  token(claims: ClaimChanges = {}, ttlMs?: number): Promise<string> {
    return this.control.token(this.#claims(claims, ttlMs))
  }

  /** As `token`, with the signature of another key. */
  forged(claims: ClaimChanges = {}): Promise<string> {
    return this.control.token(this.#claims(claims), { project_id: 'prj_one', key_id: 'key_b' })
  }

  #claims(changes: ClaimChanges, ttlMs = 300_000): TokenClaims {
    const now = this.clock.now()
    const claims = {
      project_id: 'prj_one',
      key_id: 'key_a',
      sub: 'ada',
      issued_at: timestamp(now),
      expires_at: timestamp(now + ttlMs),
      ...changes,
    }
    return claims as TokenClaims
  }

  /** Returns a JWT of prj_one's login that is valid for 5 minutes. */
  jwt(sub = 'ada'): Promise<string> {
    const now = this.clock.now() / 1000
    return new SignJWT({ iss: 'https://login.example', aud: 'game', sub, iat: now, exp: now + 300 })
      .setProtectedHeader({ alg: 'EdDSA', kid: 'one' })
      .sign(this.control.login.privateKey)
  }

  /** Connects a client. It sends nothing. */
  open(protocols?: string[], options?: object): Promise<TestClient> {
    return TestClient.open(this.url, protocols, options)
  }

  /** Connects a client and sends hello. Default: a valid token. */
  async present(token?: string, features?: string[]): Promise<TestClient> {
    const client = await this.open()
    const named = features && { features }
    client.send({ t: 'hello', project_id: 'prj_one', token: token ?? (await this.token()), ...named })
    return client
  }

  /** Connects a client with a new session. */
  async hello(token?: string, features?: string[]) {
    const client = await this.present(token, features)
    const welcome = await client.next('welcome')
    return { client, welcome }
  }

  /** Connects a client with a new session, and joins `arena:<key>`. */
  async join(key = 'one', token?: string, features?: string[]) {
    const { client, welcome } = await this.hello(token, features)
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key } })
    const joined = await client.next('joined')
    const snapshot = await client.next('state.snapshot')
    return { client, welcome, joined, snapshot }
  }

  /** Connects a client and sends a resume. */
  async resume(
    { session_id: sessionId, resume_token: resumeToken }: { session_id: string; resume_token: string },
    positions: readonly Position[] = [],
  ): Promise<TestClient> {
    const client = await this.open()
    client.send({
      t: 'hello',
      project_id: 'prj_one',
      resume: {
        session_id: sessionId,
        resume_token: resumeToken,
        rooms: positions.map(({ room_id, member_id = 'mem_own', epoch, seq, settled = 0 }) => {
          return { room_id, member_id, epoch, seq, settled }
        }),
      },
    })
    return client
  }

  /** Sends a fresh token. Resolves when the gateway has checked it. */
  async renew(client: TestClient, token: string): Promise<void> {
    // The second token waits until the first is checked, and only a refusal has an answer.
    client.send({ t: 'token', token }, { t: 'token', token: 'rubbish' })
    await client.next('error', ({ code }) => code === 'invalid_token')
  }

  async close(): Promise<void> {
    await this.gateway.close()
    await this.control.close()
  }
}

type Received<T extends ServerMessage['t']> = Extract<ServerMessage, { t: T }>

/** A `RawClient` that stores its messages, for tests that wait for one message after the other. */
export class TestClient extends RawClient {
  /** All received messages, oldest first. */
  readonly received: ServerMessage[] = []
  readonly #waiting: {
    matches: (message: ServerMessage) => boolean
    resolve: (message: ServerMessage) => void
  }[] = []
  #read = 0

  override readonly onMessage = (message: object): void => this.#receive(message as ServerMessage)

  /** Resolves when the websocket is open. */
  static override async open(url: string, protocols: string[] = [], options = {}): Promise<TestClient> {
    return new TestClient(await upgraded(url, protocols, options))
  }

  override send(...messages: ClientMessage[]): void {
    for (const message of messages) this.ws.send(JSON.stringify(message))
  }

  /** Resolves with the next message of a type, and skips other messages. Rejects if the connection closes before. */
  next<T extends ServerMessage['t']>(
    t: T,
    fits: (message: Received<T>) => boolean = () => true,
  ): Promise<Received<T>> {
    const matches = (message: ServerMessage): boolean => message.t === t && fits(message as Received<T>)
    while (this.#read < this.received.length) {
      const message = this.received[this.#read++]!
      if (matches(message)) return Promise.resolve(message as Received<T>)
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ matches, resolve: (message) => resolve(message as Received<T>) })
      void this.closed.then(({ code, reason }) =>
        reject(new Error(`closed with ${code} "${reason}" while waiting for ${t}`)),
      )
    })
  }

  /** Waits for a pong. All earlier messages of the server have then arrived. */
  async roundTrip(): Promise<void> {
    const at = this.received.length + Math.random()
    this.send({ t: 'ping', at })
    await this.next('pong', (pong) => pong.at === at)
  }

  #receive(message: ServerMessage): void {
    this.received.push(message)
    const first = this.#waiting[0]
    if (!first) return
    this.#read = this.received.length
    if (!first.matches(message)) return
    this.#waiting.shift()
    first.resolve(message)
  }
}

/** Expects that the server closes the connection with this code and a matching reason. */
export async function expectClose(client: TestClient, name: CloseName, reason: RegExp): Promise<void> {
  expect(await client.closed).toEqual({ code: CLOSE[name], reason: expect.stringMatching(reason) })
}

/** The gateways of the nodes `node_a` and `node_b`, with one store, one control and one owner of all rooms. */
export class TestPair {
  readonly a: TestGateway
  readonly b: TestGateway
  readonly clock: FakeClock
  readonly owner: TestOwner
  readonly records: TestRecords
  readonly lists = new TestLists()
  /** True: nodes receive no message about a session that another node has taken. */
  deaf = false
  /** The node that has all rooms of every session at `node_a`, with its address. */
  nearer: { readonly nodeId: string; readonly url: string } | undefined
  /** Time since the store restarted empty, milliseconds. */
  storeUptimeMs = Number.POSITIVE_INFINITY
  /** Nodes that count as gone. */
  readonly gone = new Set<string>()
  /** Nodes whose lease has expired. */
  readonly dead = new Set<string>()

  private constructor(parts: Pick<TestPair, 'a' | 'b' | 'clock' | 'owner' | 'records'>) {
    this.a = parts.a
    this.b = parts.b
    this.clock = parts.clock
    this.owner = parts.owner
    this.records = parts.records
  }

  /** `records`: records of sessions. Default: records in memory. */
  static async start(options: Partial<GatewayOptions> = {}, records?: Records): Promise<TestPair> {
    const clock = new FakeClock()
    const world = { clock, control: await TestControl.start(), owner: new TestOwner(testCodecs()) }
    const shared = new TestRecords(records ?? memoryStore({ clock }).records, clock, systemRandom)
    const start = (nodeId: string): Promise<TestGateway> =>
      TestGateway.start(
        options,
        {
          nodeId,
          records: shared,
          directory: {
            rooms: (list, query, allows) => pair.lists.rooms(list, query, allows),
            watch: (...query) => pair.lists.watch(...query),
          },
          cluster: {
            nodes: {
              isGone: (other) => pair.gone.has(other),
              isDead: async (nodeId) => pair.dead.has(nodeId),
              storeIsBehind: async (ms) => pair.storeUptimeMs < ms,
            },
            reroutes: () => pair.nearer !== undefined,
            nearerNode: ({ length }) => (nodeId === 'node_a' && length > 0 ? pair.nearer : undefined),
            notifyTaken: (nodeId, ...taken) => {
              if (!pair.deaf) void pair.gateway(nodeId).gateway.sessionTaken(...taken)
            },
          },
        },
        world,
      )
    const parts = { a: await start('node_a'), b: await start('node_b'), clock, owner: world.owner }
    const pair: TestPair = new TestPair({ ...parts, records: shared })
    world.owner.deliver = (message) => {
      pair.a.gateway.edge.receive(message)
      pair.b.gateway.edge.receive(message)
    }
    return pair
  }

  gateway(nodeId: string): TestGateway {
    return nodeId === 'node_a' ? this.a : this.b
  }

  /** Advances the clock by `ms` in steps, and runs what is due. */
  async pass(ms: number, stepMs = ms): Promise<void> {
    for (let passed = 0; passed < ms; passed += stepMs) {
      this.clock.advance(stepMs)
      await new Promise(setImmediate)
    }
  }

  /** Advances the clock about as fast as real time until `work` resolves, because the sockets need real time. */
  async meanwhile<T>(work: Promise<T>): Promise<T> {
    let over = false
    const done = work.finally(() => {
      over = true
    })
    const tick = (): boolean => {
      this.clock.advance(5)
      return over
    }
    await vi.waitUntil(tick, { interval: 5, timeout: 60_000 })
    return done
  }

  async close(): Promise<void> {
    await this.meanwhile(Promise.all([this.a.close(), this.b.close()]))
  }
}

/** Returns the row of `arena:<key>`. */
export const listedRow = (key: string, changes: Partial<StoredRow> = {}): StoredRow => ({
  room_id: `arena:${key}`,
  room_type: 'arena',
  key,
  players: 1,
  max_players: null,
  reserved: 0,
  created_at: '2026-10-01T12:00:00.000Z',
  data: { map: 'desert' },
  node_id: 'node_1',
  code: 'K7QX2M',
  ...changes,
})

/** Returns a complete answer with these rows. */
export const answerOf = (rows: readonly StoredRow[]): QueryResult => ({
  rows,
  looked: rows.length,
  comparisons: rows.length,
  stoppedAt: undefined,
})

/** A directory with one list, which a test fills. */
export class TestLists {
  /** Rows of the list. */
  all: readonly StoredRow[] = []
  /** Error of the next queries. */
  failure: Error | undefined
  /** Work of the next queries. */
  work: Partial<QueryResult> = {}
  /** The receiver of the newest watch. */
  latest: Watcher | undefined
  /** False: watchers receive no list. */
  answers = true
  readonly queries: unknown[] = []
  readonly watchers = new Set<() => void>()

  readonly rooms = async (
    list: { readonly projectId: string; readonly roomType: string },
    query: RoomQuery,
    allows: (roomId: string) => boolean,
  ): Promise<QueryResult> => {
    this.queries.push([list, query])
    if (this.failure) throw this.failure
    return { ...answerOf(this.all.filter(({ room_id: roomId }) => allows(roomId))), ...this.work }
  }

  readonly watch = (
    list: { readonly projectId: string; readonly roomType: string },
    query: RoomQuery,
    claim: readonly string[] | undefined,
    watcher: Watcher,
  ): (() => void) => {
    this.queries.push([list, query])
    const rows = () =>
      claim === undefined
        ? this.all
        : this.all.filter(({ room_id: roomId }) => covers(claim, list.roomType, roomId))
    const call = () => this.answers && watcher.changed(rows())
    this.watchers.add(call)
    this.latest = watcher
    call()
    return () => void this.watchers.delete(call)
  }

  /** Replaces the rows, and calls the watchers. */
  change(...rows: readonly StoredRow[]): void {
    this.all = rows
    for (const call of this.watchers) call()
  }
}
