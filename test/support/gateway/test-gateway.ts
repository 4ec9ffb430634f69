import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { PublicProtocol } from 'paseto'
import { ExportPublicKeyFactory, GenerateKeyPairFactory } from 'paseto/v4/public'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { Gateway, type GatewayParts } from '../../../dataplane/gateway/gateway.ts'
import { askControl } from '../../../dataplane/gateway/key-status.ts'
import { GATEWAY_METRICS } from '../../../dataplane/gateway/metrics.ts'
import type { GatewayOptions } from '../../../dataplane/gateway/options.ts'
import { timestamp } from '../../../shared/clock.ts'
import { registerMetrics } from '../../../shared/metrics.ts'
import type { ResumePosition } from '../../../shared/protocol/messages.ts'
import { systemRandom } from '../../../shared/random.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import { issueToken, type SigningKey, type TokenClaims } from '../../../shared/tokens.ts'
import { FakeClock } from '../fake-clock.ts'
import { TestClient } from './test-client.ts'
import { TestOwner, testCodecs } from './test-owner.ts'

const INTERNAL_TOKEN = 'internal-token-of-the-tests'
const protocol = new PublicProtocol(GenerateKeyPairFactory, ExportPublicKeyFactory)

interface TestKey {
  readonly signing: SigningKey
  readonly public_key: string
  status: 'active' | 'retiring' | 'revoked'
}

/** Answers `GET /internal/key-status` over HTTP as control does. Projects prj_one and prj_two have keys key_a and key_b. */
export class TestControl {
  /** How often it was asked. */
  asked = 0
  /** Answers 503 while set. */
  down = false
  /** Takes nobody for a node while set. */
  refuses = false
  /** When set, answers wait for it. */
  held: Promise<void> | undefined
  /** Resolves at the first question. */
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
      const name = keyName(url.searchParams.get('project_id')!, url.searchParams.get('key_id') ?? undefined)
      const key = this.#keys.get(name)
      const answer = key
        ? { exists: true, status: key.status, public_key: key.public_key }
        : { exists: false, status: null, public_key: null }
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
    for (const key_id of ['key_a', 'key_b']) {
      await control.addKey('prj_one', key_id)
      await control.addKey('prj_two', key_id)
    }
    return control
  }

  get ask() {
    const { port } = this.#server.address() as AddressInfo
    return askControl({
      control_url: `http://127.0.0.1:${port}`,
      internal_token: INTERNAL_TOKEN,
      timeout_ms: 5000,
    })
  }

  /** Makes a key; `key_id` undefined: the project's built-in pair. */
  async addKey(project_id: string, key_id?: string): Promise<void> {
    const pair = await protocol.GenerateKeyPair()
    this.#keys.set(keyName(project_id, key_id), {
      signing: pair.secretKey,
      public_key: await protocol.ExportPublicKey(pair.publicKey),
      status: 'active',
    })
  }

  setStatus(status: TestKey['status'], project_id: string, key_id?: string): void {
    this.#keys.get(keyName(project_id, key_id))!.status = status
  }

  /** A token with these claims; `under` signs it with another key than the one it names. */
  token(claims: TokenClaims, under: { project_id: string; key_id?: string } = claims): Promise<string> {
    return issueToken(this.#keys.get(keyName(under.project_id, under.key_id))!.signing, claims)
  }

  close(): Promise<void> {
    return new Promise((resolve) => this.#server.close(() => resolve()))
  }
}

const keyName = (project_id: string, key_id: string | undefined): string => `${project_id}/${key_id ?? ''}`

/** What is around a gateway. */
export interface TestWorld {
  readonly clock: FakeClock
  readonly control: TestControl
  readonly owner: TestOwner
}

/** A gateway on loopback with a key status server and an owner of test rooms. */
export class TestGateway {
  readonly gateway: Gateway
  readonly clock: FakeClock
  readonly control: TestControl
  readonly owner: TestOwner
  readonly url: string
  readonly http_url: string

  private constructor(
    parts: Pick<TestGateway, 'gateway' | 'clock' | 'control' | 'owner' | 'url' | 'http_url'>,
  ) {
    this.gateway = parts.gateway
    this.clock = parts.clock
    this.control = parts.control
    this.owner = parts.owner
    this.url = parts.url
    this.http_url = parts.http_url
  }

  /** `world`: what the gateway shares with others; its own, if nothing is said. */
  static async start(
    options: Partial<GatewayOptions> = {},
    parts: Partial<GatewayParts> = {},
    world?: TestWorld,
  ): Promise<TestGateway> {
    const codecs = testCodecs()
    const { clock, control, owner } = world ?? {
      clock: new FakeClock(),
      control: await TestControl.start(),
      owner: new TestOwner(codecs),
    }
    const gateway = new Gateway({
      node_id: 'node_test',
      clock,
      random: systemRandom,
      log: pino({ level: 'silent' }),
      codecs,
      ask_key_status: control.ask,
      send: owner.send,
      records: memoryStore({ clock }).records,
      metrics: registerMetrics(new Registry(), GATEWAY_METRICS),
      // Most of these players are one and the same.
      options: { max_sessions_per_sub: 0, hellos_per_second: 10_000, ...options },
      ...parts,
    })
    owner.deliver = (message) => gateway.receive(message)
    const { port } = await gateway.listen('127.0.0.1', 0)
    const http_url = `http://127.0.0.1:${port}`
    return new TestGateway({ gateway, clock, control, owner, url: http_url.replace('http', 'ws'), http_url })
  }

  /** A token of prj_one under key_a, good for five minutes, unless told otherwise. */
  token(claims: Partial<TokenClaims> = {}, ttl_ms = 300_000): Promise<string> {
    const now = this.clock.now()
    return this.control.token({
      project_id: 'prj_one',
      key_id: 'key_a',
      sub: 'ada',
      issued_at: timestamp(now),
      expires_at: timestamp(now + ttl_ms),
      ...claims,
    })
  }

  /** A token of prj_one's built-in pair. */
  tokenWithoutKey(): Promise<string> {
    const now = this.clock.now()
    return this.control.token({
      project_id: 'prj_one',
      sub: 'ada',
      issued_at: timestamp(now),
      expires_at: timestamp(now + 300_000),
    })
  }

  /** A connected client that has said nothing yet. */
  open(protocols?: string[], options?: object): Promise<TestClient> {
    return TestClient.open(this.url, protocols, options)
  }

  /** A client with a new session. */
  async hello(token?: string) {
    const client = await this.open()
    client.send({ t: 'hello', project_id: 'prj_one', token: token ?? (await this.token()) })
    const welcome = await client.next('welcome')
    return { client, welcome }
  }

  /** A client with a new session in `arena:<key>`. */
  async join(key = 'one', token?: string) {
    const { client, welcome } = await this.hello(token)
    client.send({ t: 'join', ref: 1, room_type: 'arena', options: { key } })
    const joined = await client.next('joined')
    const snapshot = await client.next('state.snapshot')
    return { client, welcome, joined, snapshot }
  }

  /** A client that says it comes back. */
  async resume(
    { session_id, resume_token }: { session_id: string; resume_token: string },
    rooms: ResumePosition[] = [],
  ): Promise<TestClient> {
    const client = await this.open()
    client.send({ t: 'hello', project_id: 'prj_one', resume: { session_id, resume_token, rooms } })
    return client
  }

  async close(): Promise<void> {
    await this.gateway.close()
    await this.control.close()
  }
}
