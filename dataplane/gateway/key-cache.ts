import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import { importVerifyKey, type VerifyKey } from '../../shared/tokens.ts'
import { type AskKeyStatus, KeyStatusUnavailable } from './key-status.ts'
import type { GatewayMetrics } from './metrics.ts'
import { Semaphore } from './semaphore.ts'

/** What a node knows about a key. */
export type KeyState =
  | { readonly kind: 'usable'; readonly verifyKey: VerifyKey }
  | { readonly kind: 'revoked' }
  | { readonly kind: 'unknown' }

/** A key's name: `key_id` undefined means the project's built-in pair. */
export interface KeyName {
  readonly projectId: string
  readonly keyId: string | undefined
}

/** A name for a key that no other key has, whatever the ids are made of. */
export const keyName = ({ projectId, keyId }: KeyName): string =>
  JSON.stringify(keyId === undefined ? [projectId] : [projectId, keyId])

interface Entry {
  readonly state: KeyState
  readonly answeredAt: number
  askAgainAt: number
}

/** What a cache of keys needs. */
export interface KeyCacheParts {
  readonly ask: AskKeyStatus
  readonly clock: Clock
  readonly metrics: GatewayMetrics
  readonly log: Logger
  /** How many keys that were never met may be asked about, or wait to be, at once. */
  readonly maxKeyLookups: number
}

/**
 * How long an answer is good. "No such key": long enough to dampen a flood, short enough for a key that is just being made.
 */
const GOOD_FOR_MS = { usable: 30_000, unknown: 2000, revoked: Number.POSITIVE_INFINITY }
/** How old an answer may be when control cannot be reached. */
const STALE_MS = 300_000
/** How long control is left alone about a key after it could not be reached. */
const PAUSE_MS = 1000
/** The most keys kept that exist; the one asked for least lately goes. */
const MAX_KNOWN = 10_000
/** The most names kept that are no key's; the oldest goes. */
const MAX_UNKNOWN = 1000
/** How many questions to control run at once about keys that were met before, and as many about others. */
const MAX_RUNNING = 16

/**
 * What control has said about keys. Asks once at a time for each key; an answer is good for 30 s, or until `invalidate`. When control
 * cannot be reached, what it said in the last 5 minutes holds. A revocation is final.
 *
 * Anyone can make up names of keys. So keys that exist, those that do not, and the questions about either are kept apart: however many
 * names are made up, no key that was met is forgotten for them, or waits behind them.
 */
export class KeyCache {
  readonly #parts: KeyCacheParts
  readonly #known = new Map<string, Entry>()
  readonly #unknown = new Map<string, Entry>()
  readonly #flights = new Map<string, Promise<KeyState>>()
  readonly #rechecks = new Semaphore(MAX_RUNNING, MAX_KNOWN)
  readonly #lookups: Semaphore
  /** Control refuses this node, and the log says so. */
  #refused = false
  /** The last question that control did not answer, and when that was, on the monotonic clock. */
  #failure: { readonly error: KeyStatusUnavailable; readonly at: number } | undefined

  constructor(parts: KeyCacheParts) {
    this.#parts = parts
    const running = Math.min(MAX_RUNNING, parts.maxKeyLookups)
    this.#lookups = new Semaphore(running, parts.maxKeyLookups - running)
  }

  /** The state of a key. Rejects with `KeyStatusUnavailable` when control cannot be asked and has said nothing lately. */
  state(key: KeyName): Promise<KeyState> {
    const name = keyName(key)
    const entry = this.#known.get(name) ?? this.#unknown.get(name)
    if (entry && this.#parts.clock.monotonic() < entry.askAgainAt) return Promise.resolve(entry.state)
    return this.#flights.get(name) ?? this.#fly(name, key)
  }

  /** Whether the key is known to be revoked, at this very moment. */
  isRevoked(key: KeyName): boolean {
    return this.#known.get(keyName(key))?.state.kind === 'revoked'
  }

  /** The key is revoked, whatever an answer under way may say. */
  revoke(key: KeyName): void {
    const name = keyName(key)
    this.#flights.delete(name)
    this.#keep(name, { kind: 'revoked' })
  }

  /** Something about the key has changed: ask before the next use. */
  invalidate(key: KeyName): void {
    const name = keyName(key)
    this.#flights.delete(name)
    this.#unknown.delete(name)
    const entry = this.#known.get(name)
    if (entry && entry.state.kind !== 'revoked') entry.askAgainAt = 0
  }

  /** News may have been missed: ask about every key before its next use. */
  invalidateAll(): void {
    this.#flights.clear()
    this.#unknown.clear()
    for (const entry of this.#known.values()) if (entry.state.kind !== 'revoked') entry.askAgainAt = 0
  }

  #fly(name: string, key: KeyName): Promise<KeyState> {
    const questions = this.#known.has(name) ? this.#rechecks : this.#lookups
    const since = this.#parts.clock.monotonic()
    const answer = questions.run(() => this.#request(key, since))
    if (!answer) {
      this.#parts.metrics.keyChecks.inc({ result: 'busy' })
      return Promise.reject(
        new KeyStatusUnavailable('busy', 'too many keys that are not known here are being asked about'),
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

  /** `since`: when the question came up. One that had to wait while another failed is not asked: control is away, and takes its time. */
  async #request({ projectId, keyId }: KeyName, since: number): Promise<KeyState> {
    try {
      if (this.#failure && this.#failure.at > since) throw this.#failure.error
      const answer = await this.#parts.ask(projectId, keyId)
      this.#parts.metrics.keyChecks.inc({ result: 'ok' })
      this.#refused = false
      if (!answer.exists) return { kind: 'unknown' }
      if (answer.status === 'revoked') return { kind: 'revoked' }
      return { kind: 'usable', verifyKey: await importVerifyKey(answer.public_key) }
    } catch (error) {
      if (error instanceof KeyStatusUnavailable) this.#failed(error)
      throw error
    }
  }

  #failed(error: KeyStatusUnavailable): void {
    this.#failure = { error, at: this.#parts.clock.monotonic() }
    this.#parts.metrics.keyChecks.inc({ result: error.fault })
    if (error.fault !== 'refused' || this.#refused) return
    this.#refused = true
    this.#parts.log.error(
      { reason: error.message },
      'control does not answer this node: is its INTERNAL_TOKEN control’s?',
    )
  }

  #lastKnown(name: string, error: unknown): KeyState {
    const entry = this.#known.get(name)
    const now = this.#parts.clock.monotonic()
    if (!entry || now - entry.answeredAt > STALE_MS) throw error
    entry.askAgainAt = now + PAUSE_MS
    return entry.state
  }

  #keep(name: string, state: KeyState): void {
    const now = this.#parts.clock.monotonic()
    const unknown = state.kind === 'unknown'
    this.#known.delete(name)
    this.#unknown.delete(name)
    const kept = unknown ? this.#unknown : this.#known
    kept.set(name, { state, answeredAt: now, askAgainAt: now + GOOD_FOR_MS[state.kind] })
    if (kept.size <= (unknown ? MAX_UNKNOWN : MAX_KNOWN)) return
    for (const oldest of kept.keys()) {
      kept.delete(oldest)
      break
    }
  }
}
