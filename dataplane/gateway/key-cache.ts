import type { Clock } from '../../shared/clock.ts'
import { importVerifyKey, type VerifyKey } from '../../shared/tokens.ts'
import { type AskKeyStatus, KeyStatusUnavailable } from './key-status.ts'
import type { GatewayMetrics } from './metrics.ts'

/** What a node knows about a key. */
export type KeyState =
  | { readonly kind: 'usable'; readonly verify_key: VerifyKey }
  | { readonly kind: 'revoked' }
  | { readonly kind: 'unknown' }

/** A key's name: `key_id` undefined means the project's built-in pair. */
export interface KeyName {
  readonly project_id: string
  readonly key_id: string | undefined
}

interface Entry {
  readonly state: KeyState
  readonly answered_at: number
  ask_again_at: number
}

/**
 * How long an answer is good. "No such key": long enough to dampen a flood, short enough for a key that is just being made.
 */
const GOOD_FOR_MS = { usable: 30_000, unknown: 2000, revoked: Number.POSITIVE_INFINITY }
/** How old an answer may be when control cannot be reached. */
const STALE_MS = 300_000
/** How long control is left alone about a key after it could not be reached. */
const PAUSE_MS = 1000
/** The most keys kept; the one asked for least lately goes. */
const MAX_ENTRIES = 10_000

/**
 * What control has said about keys. Asks once at a time for each key; an answer is good for 30 s, or until `invalidate`. When control
 * cannot be reached, what it said in the last 5 minutes holds. A revocation is final.
 */
export class KeyCache {
  readonly #ask: AskKeyStatus
  readonly #clock: Clock
  readonly #metrics: GatewayMetrics
  readonly #entries = new Map<string, Entry>()
  readonly #flights = new Map<string, Promise<KeyState>>()

  constructor(ask: AskKeyStatus, clock: Clock, metrics: GatewayMetrics) {
    this.#ask = ask
    this.#clock = clock
    this.#metrics = metrics
  }

  /** The state of a key. Rejects with `KeyStatusUnavailable` when control cannot be reached and has said nothing lately. */
  state(key: KeyName): Promise<KeyState> {
    const name = nameOf(key)
    const entry = this.#entries.get(name)
    if (entry && this.#clock.monotonic() < entry.ask_again_at) return Promise.resolve(entry.state)
    return this.#flights.get(name) ?? this.#fly(name, key)
  }

  /** Whether the key is known to be revoked, at this very moment. */
  isRevoked(key: KeyName): boolean {
    return this.#entries.get(nameOf(key))?.state.kind === 'revoked'
  }

  /** The key is revoked, whatever an answer under way may say. */
  revoke(key: KeyName): void {
    const name = nameOf(key)
    this.#flights.delete(name)
    this.#keep(name, { kind: 'revoked' })
  }

  /** Something about the key has changed: ask before the next use. */
  invalidate(key: KeyName): void {
    const name = nameOf(key)
    this.#flights.delete(name)
    const entry = this.#entries.get(name)
    if (entry && entry.state.kind !== 'revoked') entry.ask_again_at = 0
  }

  /** News may have been missed: ask about every key before its next use. */
  invalidateAll(): void {
    this.#flights.clear()
    for (const entry of this.#entries.values()) if (entry.state.kind !== 'revoked') entry.ask_again_at = 0
  }

  #fly(name: string, key: KeyName): Promise<KeyState> {
    const flight: Promise<KeyState> = this.#request(key).then(
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

  async #request({ project_id, key_id }: KeyName): Promise<KeyState> {
    try {
      const answer = await this.#ask(project_id, key_id)
      this.#metrics.keyCheck('ok')
      if (!answer.exists) return { kind: 'unknown' }
      if (answer.status === 'revoked') return { kind: 'revoked' }
      return { kind: 'usable', verify_key: await importVerifyKey(answer.public_key) }
    } catch (error) {
      if (error instanceof KeyStatusUnavailable) this.#metrics.keyCheck('unreachable')
      throw error
    }
  }

  #lastKnown(name: string, error: unknown): KeyState {
    const entry = this.#entries.get(name)
    const now = this.#clock.monotonic()
    if (!entry || now - entry.answered_at > STALE_MS) throw error
    entry.ask_again_at = now + PAUSE_MS
    return entry.state
  }

  #keep(name: string, state: KeyState): void {
    const now = this.#clock.monotonic()
    this.#entries.delete(name)
    this.#entries.set(name, { state, answered_at: now, ask_again_at: now + GOOD_FOR_MS[state.kind] })
    if (this.#entries.size <= MAX_ENTRIES) return
    for (const oldest of this.#entries.keys()) {
      this.#entries.delete(oldest)
      break
    }
  }
}

const nameOf = ({ project_id, key_id }: KeyName): string => `${project_id}/${key_id ?? ''}`
