import http from 'node:http'
import https from 'node:https'
import * as v from 'valibot'
import type { Clock } from '../../shared/clock.ts'
import { InternalToken } from '../../shared/http-server.ts'
import { type Logger, Quiet } from '../../shared/log.ts'
import { setNewest } from '../../shared/newest.ts'
import { Semaphore } from '../../shared/semaphore.ts'
import { importVerifyKey, type VerifyKey } from '../../shared/tokens.ts'
import type { GatewayMetrics } from './metrics.ts'

/** State of a key, as control has answered. */
type KeyState =
  | { readonly kind: 'usable'; readonly publicKey: string; readonly verifyKey: VerifyKey }
  | { readonly kind: 'revoked' }
  | { readonly kind: 'unknown' }

export const KEY_REVOKED = 'the key of the token was revoked'

/** Ids of a key. `keyId` undefined: the project's built-in pair. */
export interface KeyName {
  readonly projectId: string
  readonly keyId: string | undefined
}

/** Returns a name that no other key has, whatever characters the ids contain. */
export const keyName = ({ projectId, keyId }: KeyName): string =>
  JSON.stringify(keyId === undefined ? [projectId] : [projectId, keyId])

/** Dependencies of the checks of keys. */
export interface KeyContext {
  readonly clock: Clock
  readonly metrics: GatewayMetrics
  readonly log: Logger
}

interface CachedKey {
  readonly state: KeyState
  readonly answeredAt: number
  askAgainAt: number
}

/** Time for which an answer is used. `unknown`: long enough to limit a flood, short enough for a key that is just being made. */
const USED_FOR_MS = { usable: 30_000, unknown: 2000, revoked: Number.POSITIVE_INFINITY }
/** Maximum age of an answer if control cannot be reached. */
const STALE_MS = 300_000
/** Pause before the next question about a key after control could not be reached. */
const PAUSE_MS = 1000
/** Minimum time between two log lines about the same fault of control. */
const FAULT_QUIET_MS = 10_000
/** Maximum number of cached keys that exist. The one whose last answer is the oldest is evicted. */
const MAX_KNOWN = 10_000
/** Maximum number of cached names that no key has. The oldest is evicted. */
const MAX_UNKNOWN = 1000
/** Maximum number of open questions to control about cached keys, and as many about others. So many answers may come in one turn. */
const MAX_RUNNING = 8

/**
 * Cache of the answers of control about keys. It has one open question about a key at a time. An answer is used for 30 s, or until
 * `invalidate`. If control cannot be reached, answers of the last 5 minutes are used. A revocation is final.
 *
 * Anyone can make up names of keys. So existing keys, unknown names, and the questions about either have separate bounds: made-up names never
 * evict a cached key, and questions about cached keys never wait behind them.
 */
export class KeyCache {
  readonly #context: KeyContext
  readonly #ask: AskKeyStatus
  readonly #known = new Map<string, CachedKey>()
  readonly #unknown = new Map<string, CachedKey>()
  /** Projects that were disabled or enabled again. `since`: monotonic time of that information. */
  readonly #projects = new Map<string, { readonly disabled: boolean; readonly since: number }>()
  readonly #flights = new Map<string, Promise<KeyState>>()
  readonly #rechecks = new Semaphore(MAX_RUNNING, MAX_KNOWN)
  readonly #lookups: Semaphore
  readonly #quiet: Quiet
  /** Last fault that was logged. Undefined: control has answered since. */
  #logged: KeyStatusUnavailable['fault'] | undefined
  /** Last failed question, and the monotonic time of the failure. */
  #failure: { readonly error: KeyStatusUnavailable; readonly at: number } | undefined

  /** `maxKeyLookups`: maximum number of questions about keys that are not cached, open or waiting. */
  constructor(context: KeyContext, ask: AskKeyStatus, maxKeyLookups: number) {
    this.#context = context
    this.#ask = ask
    this.#quiet = new Quiet(context.clock, FAULT_QUIET_MS)
    const running = Math.min(MAX_RUNNING, maxKeyLookups)
    this.#lookups = new Semaphore(running, maxKeyLookups - running)
  }

  /** Returns the state of a key. Rejects with `KeyStatusUnavailable` if control does not answer and there is no recent answer. */
  state(key: KeyName): Promise<KeyState> {
    const name = keyName(key)
    const entry = this.#known.get(name) ?? this.#unknown.get(name)
    if (entry && this.#context.clock.monotonic() < entry.askAgainAt) return Promise.resolve(entry.state)
    return this.#flights.get(name) ?? this.#fly(name, key)
  }

  /** Returns the reason for which a token with these claims is revoked, without a question to control. Undefined: it is not known to be revoked. */
  revocation(claims: {
    readonly project_id: string
    readonly key_id?: string | undefined
  }): string | undefined {
    if (this.#projects.get(claims.project_id)?.disabled) return 'the project is disabled'
    const key = { projectId: claims.project_id, keyId: claims.key_id }
    return this.#known.get(keyName(key))?.state.kind === 'revoked' ? KEY_REVOKED : undefined
  }

  /** Disables or enables a project. The answer to an earlier question does not change that. */
  setDisabled(projectId: string, disabled: boolean): void {
    this.#projects.set(projectId, { disabled, since: this.#context.clock.monotonic() })
  }

  /** The key was revoked. The answer to an open question does not change that. Control is asked again after 30 s. */
  revoke(key: KeyName): void {
    const name = keyName(key)
    this.#flights.delete(name)
    this.#keep(name, { kind: 'revoked' }, USED_FOR_MS.usable)
  }

  /** The key has changed: control is asked before the next use. */
  invalidate(key: KeyName): void {
    const name = keyName(key)
    this.#flights.delete(name)
    this.#unknown.delete(name)
    const entry = this.#known.get(name)
    if (entry && entry.state.kind !== 'revoked') entry.askAgainAt = 0
  }

  /** Messages about keys may be lost: control is asked about every key before its next use. */
  invalidateAll(): void {
    this.#flights.clear()
    this.#unknown.clear()
    for (const entry of this.#known.values()) if (entry.state.kind !== 'revoked') entry.askAgainAt = 0
  }

  #fly(name: string, key: KeyName): Promise<KeyState> {
    const questions = this.#known.has(name) ? this.#rechecks : this.#lookups
    const since = this.#context.clock.monotonic()
    const answer = questions.run(() => this.#request(key, since))
    if (!answer) {
      this.#context.metrics.keyChecks.inc({ result: 'busy' })
      return Promise.reject(
        new KeyStatusUnavailable('busy', 'too many questions about keys that are not known here are open'),
      )
    }
    const flight: Promise<KeyState> = answer.then(
      (state) => {
        if (this.#flights.get(name) !== flight) return this.state(key)
        this.#flights.delete(name)
        this.#keep(name, state)
        return state
      },
      (error: unknown) => {
        if (this.#flights.get(name) !== flight) return this.state(key)
        this.#flights.delete(name)
        return this.#lastKnown(name, error)
      },
    )
    this.#flights.set(name, flight)
    return flight
  }

  /**
   * `since`: monotonic time of the question. If another question has failed since, this one is not sent: control cannot be reached, and each
   * question would wait for its timeout.
   */
  async #request({ projectId, keyId }: KeyName, since: number): Promise<KeyState> {
    try {
      if (this.#failure && this.#failure.at > since) throw this.#failure.error
      const askedAt = this.#context.clock.monotonic()
      const answer = await this.#ask(projectId, keyId)
      this.#context.metrics.keyChecks.inc({ result: 'ok' })
      if (this.#logged !== undefined) this.#context.log.info('control answers again')
      this.#logged = undefined
      const { exists, project_disabled: disabled = false } = answer
      const project = this.#projects.get(projectId)
      if ((exists || disabled) && (project ? project.since < askedAt : disabled))
        this.#projects.set(projectId, { disabled, since: askedAt })
      if (!answer.exists) return { kind: 'unknown' }
      if (answer.status === 'revoked') return { kind: 'revoked' }
      const { public_key: publicKey } = answer
      const known = this.#known.get(keyName({ projectId, keyId }))?.state
      if (known?.kind === 'usable' && known.publicKey === publicKey) return known
      return { kind: 'usable', publicKey, verifyKey: await importVerifyKey(publicKey) }
    } catch (error) {
      if (error instanceof KeyStatusUnavailable) this.#failed(error)
      throw error
    }
  }

  #failed(error: KeyStatusUnavailable): void {
    this.#failure = { error, at: this.#context.clock.monotonic() }
    this.#context.metrics.keyChecks.inc({ result: error.fault })
    const text = FAULT_TEXTS[error.fault]
    if (text === undefined) return
    const suppressed = this.#quiet.pass(error.fault)
    if (suppressed === undefined) return
    this.#logged = error.fault
    this.#context.log.error({ reason: error.message, suppressed }, text)
  }

  #lastKnown(name: string, error: unknown): KeyState {
    const entry = this.#known.get(name)
    const now = this.#context.clock.monotonic()
    if (!entry || now - entry.answeredAt > STALE_MS) throw error
    entry.askAgainAt = now + PAUSE_MS
    return entry.state
  }

  #keep(name: string, state: KeyState, usedForMs = USED_FOR_MS[state.kind]): void {
    const now = this.#context.clock.monotonic()
    const unknown = state.kind === 'unknown'
    this.#known.delete(name)
    this.#unknown.delete(name)
    const kept = unknown ? this.#unknown : this.#known
    const entry = { state, answeredAt: now, askAgainAt: now + usedForMs }
    setNewest(kept, name, entry, unknown ? MAX_UNKNOWN : MAX_KNOWN)
  }
}

/** Answer of `GET /internal/key-status` of control. */
const Answer = v.pipe(
  v.string(),
  v.parseJson(),
  v.union([
    /** `project_disabled` true: the project is disabled or deleted. */
    v.object({ exists: v.literal(false), project_disabled: v.exactOptional(v.boolean()) }),
    v.object({
      exists: v.literal(true),
      status: v.picklist(['active', 'retiring', 'revoked']),
      /** PASERK `k4.public.…`, which verifies the tokens of the key. */
      public_key: v.string(),
      /** True: the project takes no players. Absent: an older version of control. */
      project_disabled: v.exactOptional(v.boolean()),
    }),
  ]),
)

/** Asks control about a key. `keyId` undefined: the project's built-in pair. Rejects with `KeyStatusUnavailable`. */
export type AskKeyStatus = (
  projectId: string,
  keyId: string | undefined,
) => Promise<v.InferOutput<typeof Answer>>

/**
 * There is no answer of control about a key. `unreachable`: control cannot be reached, or has failed. `refused`: it does not accept the
 * `INTERNAL_TOKEN` of this node. `foreign`: another server answers in its place. `busy`: too many questions of this node are open.
 */
export class KeyStatusUnavailable extends Error {
  override readonly name = 'KeyStatusUnavailable'
  readonly fault: 'unreachable' | 'refused' | 'foreign' | 'busy'

  constructor(fault: KeyStatusUnavailable['fault'], message: string, options?: ErrorOptions) {
    super(message, options)
    this.fault = fault
  }
}

/**
 * Asks with `ask`. While the store has lost its data, an unknown key counts as no answer: it may return with a backup, and a control process
 * that has started after the loss may not know of it.
 */
export const askUnlessLost =
  (ask: AskKeyStatus, dataLost: () => Promise<boolean>): AskKeyStatus =>
  async (projectId, keyId) => {
    const answer = await ask(projectId, keyId)
    const isAbsent = !answer.exists && answer.project_disabled !== true
    if (isAbsent && (await dataLost()))
      throw new KeyStatusUnavailable(
        'unreachable',
        'the store lost its data, so control cannot know all keys: restore the backup',
      )
    return answer
  }

/** Log lines of the faults of control. `busy` has none: control works, and this node has too many questions. */
const FAULT_TEXTS: { readonly [fault in KeyStatusUnavailable['fault']]?: string } = {
  unreachable:
    'control cannot be asked about keys: players with keys that this node does not know cannot connect',
  refused: 'control does not answer this node: is its INTERNAL_TOKEN control’s?',
  foreign:
    'another server answers in the place of control: is CONTROL_URL right, and what is in front of control?',
}

/** An error answer of control. No other server sends this type. */
const ControlProblem = v.pipe(
  v.string(),
  v.parseJson(),
  v.object({ type: v.pipe(v.string(), v.startsWith('urn:roomful:problem:')), code: v.string() }),
)

/** Asks control over HTTP, by connections that stay open. `timeoutMs`: maximum time for an answer. */
export function askControl(
  { controlUrl, internalToken }: { readonly controlUrl: string; readonly internalToken: string | undefined },
  timeoutMs: number,
): AskKeyStatus {
  const { shown } = new InternalToken(internalToken)
  const base = new URL(controlUrl.endsWith('/') ? controlUrl : `${controlUrl}/`)
  const { Agent, get } = base.protocol === 'https:' ? https : http
  const options = {
    agent: new Agent({ keepAlive: true }),
    headers: shown === undefined ? {} : { 'x-service-internal-token': shown },
  }
  /** `fetch` would take four times the CPU, and made-up keys cause hundreds of questions a second. */
  const ask = (url: URL): Promise<{ readonly status: number; readonly body: string }> =>
    new Promise((resolve, reject) => {
      const request = get(url, options, (response) => {
        const parts: string[] = []
        response.setEncoding('utf8').on('data', (part: string) => parts.push(part))
        response.on('end', () => resolve({ status: response.statusCode!, body: parts.join('') }))
        response.on('error', reject)
      })
      const late = (): void => void request.destroy(new Error(`no answer within ${timeoutMs} ms`))
      const timer = setTimeout(late, timeoutMs)
      request.on('error', reject).on('close', () => clearTimeout(timer))
    })
  return async (projectId, keyId) => {
    const url = new URL('internal/key-status', base)
    url.searchParams.set('project_id', projectId)
    if (keyId !== undefined) url.searchParams.set('key_id', keyId)
    const { status, body } = await ask(url).catch((error: NodeJS.ErrnoException) => {
      const reason = error.code ?? error.message
      throw new KeyStatusUnavailable('unreachable', `control did not answer: ${reason}`, { cause: error })
    })
    const answer = v.safeParse(Answer, body)
    if (status === 200 && answer.success) return answer.output
    const problem = v.safeParse(ControlProblem, body)
    // No key has a name that control does not accept. A repeated question would get the same answer.
    if (status === 400 && problem.success && problem.output.code === 'invalid_request')
      return { exists: false }
    const code = problem.success ? ` (${problem.output.code})` : ''
    const what = `${status}${code} at ${url.origin}${url.pathname}`
    if (problem.success && (status === 401 || status === 403))
      throw new KeyStatusUnavailable('refused', `control answered ${what}`)
    if (problem.success) throw new KeyStatusUnavailable('unreachable', `control answered ${what}`)
    // A load balancer answers 5xx while no control process runs, and 408 if the request arrives too slowly.
    if (status >= 500 || status === 408)
      throw new KeyStatusUnavailable('unreachable', `a server in front of control answered ${what}`)
    throw new KeyStatusUnavailable('foreign', `another server answered ${what}: control gives no such answer`)
  }
}
