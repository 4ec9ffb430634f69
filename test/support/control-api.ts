import { pino } from 'pino'
import { expect } from 'vitest'
import { type ControlOptions, type RunningControl, startControl } from '../../control/main.ts'
import { systemRandom } from '../../shared/random.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type { Store } from '../../shared/store/port.ts'
import { FakeClock } from '../kit/fake-clock.ts'

const log = pino({ level: 'silent' })
export const OPERATOR = 'operator-token-of-the-tests'
export const INTERNAL = 'internal-token-of-the-tests'
export const config: ControlOptions = {
  controlPort: 0,
  controlApiTokens: ['another-operator-token', OPERATOR],
  keyringSecret: 'a keyring secret for the tests only',
  internalToken: INTERNAL,
}

/** An answer of the control API. */
export interface Answer {
  readonly status: number
  readonly headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: answers are asserted on, field by field.
  readonly body: any
}

/** Options of a call. */
export interface Request {
  readonly body?: unknown
  /** Bearer token. Null: none. Default: the token of the operator. */
  readonly as?: string | null
  readonly headers?: Readonly<Record<string, string>>
}

/** A request as `fetch` sends it. */
interface SentRequest {
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
}

/** Calls the API. `line`: method and path, such as `POST /projects`. `send`: `fetch`, or one that trusts another certificate. */
export async function call(
  url: string,
  line: string,
  request: Request = {},
  send: (url: string, request: SentRequest) => Promise<Response> = fetch,
): Promise<Answer> {
  const [method, path] = line.split(' ')
  const { body, as = OPERATOR, headers = {} } = request
  const response = await send(`${url}${path}`, {
    method: method!,
    headers: {
      ...(as !== null && { authorization: `Bearer ${as}` }),
      ...(method !== 'GET' && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })
  const text = await response.text()
  const json = response.headers.get('content-type')?.includes('json')
  return { status: response.status, headers: response.headers, body: json ? JSON.parse(text) : text }
}

/** Expects a complete problem document with this code. */
export function expectProblem(answer: Answer, status: number, code: string): void {
  expect(answer.body).toEqual({
    type: `urn:roomful:problem:${code}`,
    title: expect.any(String),
    status,
    code,
    detail: expect.any(String),
    request_id: answer.headers.get('x-request-id'),
    ...(answer.body.errors && { errors: expect.any(Array) }),
  })
  expect(answer.status).toBe(status)
  expect(answer.headers.get('content-type')).toBe('application/problem+json')
}

/** A control with a store in memory and a fake clock. */
export class ControlUnderTest {
  readonly clock = new FakeClock()
  store!: Store
  control!: RunningControl

  async start(options: Partial<ControlOptions> = {}): Promise<void> {
    this.store = memoryStore({ clock: this.clock })
    this.control = await startControl({
      config: { ...config, ...options },
      store: this.store,
      log,
      clock: this.clock,
      random: systemRandom,
    })
  }

  async close(): Promise<void> {
    await this.control?.close()
    await this.store?.close()
  }

  get url(): string {
    return this.control.url
  }

  call(line: string, request?: Request): Promise<Answer> {
    return call(this.url, line, request)
  }

  /** Creates a project. Returns its id. */
  async newProject(name = 'a game'): Promise<string> {
    return (await this.call('POST /projects', { body: { name } })).body.id
  }

  async newKey(projectId: string, body: object = {}): Promise<{ id: string; secret: string }> {
    return (await this.call(`POST /projects/${projectId}/keys`, { body })).body
  }

  /** Returns the key status that nodes read. Without `keyId`: the status of the built-in pair. */
  async statusOf(projectId: string, keyId?: string) {
    const query = new URLSearchParams({
      project_id: projectId,
      ...(keyId !== undefined && { key_id: keyId }),
    })
    const headers = { 'x-service-internal-token': INTERNAL }
    return (await this.call(`GET /internal/key-status?${query}`, { as: null, headers })).body
  }

  /** Subscribes to messages about keys. `end` unsubscribes. */
  async hearKeys(): Promise<{ heard: unknown[]; end: () => Promise<void> }> {
    const heard: unknown[] = []
    const end = await this.store.bus.subscribe('keys', (message) => {
      heard.push(JSON.parse(Buffer.from(message).toString()))
    })
    return { heard, end }
  }
}
