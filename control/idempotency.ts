import { createHash } from 'node:crypto'
import { Problem } from '../shared/problem.ts'
import type { Records, StoredRecord, Write } from '../shared/store/port.ts'
import { invalid } from '../shared/validate.ts'
import type { Keyring } from './keyring.ts'

/** What a request would do, and what it answers once that is done. */
export interface Plan<Answer> {
  readonly writes: readonly Write[]
  readonly answer: Answer
}

/** An answer, and whether it is that of an earlier request. */
export interface Outcome<Answer> {
  readonly answer: Answer
  readonly replayed: boolean
}

/** What makes a request the same as another. */
export interface RequestIdentity {
  readonly callerId: string
  readonly path: string
  /** The validated body. */
  readonly body: unknown
  /** The `idempotency-key` header. */
  readonly idempotencyKey: string | undefined
}

interface Remembered {
  readonly fingerprint: string
  readonly answer: unknown
}

const KEEP_MS = 24 * 3600 * 1000
const ATTEMPTS = 20
const KEY_PATTERN = /^[\x20-\x7e]{1,255}$/

const sha256 = (text: string): string => createHash('sha256').update(text).digest('base64url')

/** Returns the value of an `idempotency-key` header. Throws a `Problem` (invalid_request) for one that is none. */
export function checkedKey(key: string | undefined): string | undefined {
  if (key === undefined || KEY_PATTERN.test(key)) return key
  throw invalid([{ path: 'idempotency-key', message: 'must be 1 to 255 printable ASCII characters' }])
}

/**
 * Carries out plans, each idempotency key of a caller and path once. The answer is remembered **in the same atomic write** as what the
 * plan does, so there is no moment in which one stands without the other, and of concurrent duplicates one wins and the others give
 * its answer. An answer may hold a key's secret: it rests sealed in the keyring, for 24 hours.
 */
export class Idempotency {
  readonly #records: Records
  readonly #keyring: Keyring

  constructor(records: Records, keyring: Keyring) {
    this.#records = records
    this.#keyring = keyring
  }

  /**
   * Makes a plan and carries it out, again from the start when another process wrote meanwhile. Without an idempotency key nothing is
   * remembered. Rejects with a `Problem`: invalid_request for a key that is none, conflict for a known key with another body.
   */
  async run<Answer>(request: RequestIdentity, plan: () => Promise<Plan<Answer>>): Promise<Outcome<Answer>> {
    const key = checkedKey(request.idempotencyKey)
    const recordKey = `{control}:idempotency:${sha256(JSON.stringify([request.callerId, request.path, key]))}`
    const fingerprint = sha256(JSON.stringify(request.body))
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (key !== undefined) {
        const [record] = await this.#records.read([recordKey])
        if (record) return { answer: this.#recall(record, recordKey, fingerprint) as Answer, replayed: true }
      }
      const { writes, answer } = await plan()
      const memory = key === undefined ? [] : [this.#remember(recordKey, { fingerprint, answer })]
      if (await this.#records.write([...writes, ...memory])) return { answer, replayed: false }
    }
    throw new Problem('conflict', 'Others keep changing the same thing; try again.')
  }

  #remember(recordKey: string, remembered: Remembered): Write {
    const value = this.#keyring.seal(JSON.stringify(remembered), recordKey)
    return { put: recordKey, value, ifVersion: 0, ttlMs: KEEP_MS }
  }

  #recall(record: StoredRecord, recordKey: string, fingerprint: string): unknown {
    const remembered = this.#read(record, recordKey)
    if (remembered.fingerprint === fingerprint) return remembered.answer
    throw new Problem(
      'conflict',
      'This idempotency-key was used with another body; use a new key for a new request.',
    )
  }

  #read(record: StoredRecord, recordKey: string): Remembered {
    let text: string
    try {
      text = this.#keyring.unseal(record.value, recordKey)
    } catch {
      throw new Problem(
        'conflict',
        'This idempotency-key was used, but the answer cannot be read any more (KEYRING_SECRET was changed); use a new key.',
      )
    }
    return JSON.parse(text)
  }
}
