import { createHash } from 'node:crypto'
import type { Clock } from '../shared/clock.ts'
import { Problem } from '../shared/problem.ts'
import type { Random } from '../shared/random.ts'
import type { Bus, Records, StoredRecord, Write } from '../shared/store/port.ts'
import { invalid } from '../shared/validate.ts'
import type { Keyring } from './keyring.ts'

/** Dependencies of the projects, keys and players of a deployment. */
export interface RecordsEnvironment {
  readonly records: Records
  readonly bus: Bus
  readonly clock: Clock
  readonly random: Random
  readonly keyring: Keyring
}

/** Returns the bytes of a record with this value, as JSON. */
export const encode = (value: object): Uint8Array => new TextEncoder().encode(JSON.stringify(value))
/** Returns the value of a record of `encode`. */
export const decode = <T>(record: StoredRecord): T => JSON.parse(new TextDecoder().decode(record.value))

/** Makes members of an ordered set that sort by time of creation, also within one millisecond of one process. */
export class CreationOrder {
  readonly #clock: Clock
  #ms = 0
  #count = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** `<milliseconds, 15 digits>.<count, 6 digits>:<id>`. */
  member(id: string): string {
    const now = this.#clock.now()
    this.#count = now === this.#ms ? this.#count + 1 : 0
    this.#ms = now
    return `${String(now).padStart(15, '0')}.${String(this.#count).padStart(6, '0')}:${id}`
  }
}

/** Pattern of a member of such a set. */
export const MEMBER_PATTERN = /^\d{15}\.\d{6}:[\w-]+$/

/** Start and length of a page. */
export interface PageRequest {
  /** Maximum number of records. */
  readonly limit: number
  /** `next` of the previous page. Undefined: the page starts with the newest record. */
  readonly before: string | undefined
}

/** Reads one page of the records in `index`, newest first. `keyOf` returns the store key of an id. `next` continues; undefined at the end. */
export async function readPage<T>(
  records: Records,
  index: string,
  keyOf: (id: string) => string,
  { limit, before }: PageRequest,
): Promise<{ page: T[]; next: string | undefined }> {
  const members = await records.page(index, { limit: limit + 1, ...(before !== undefined && { before }) })
  const shown = members.slice(0, limit)
  const found = await records.read(shown.map((member) => keyOf(idOf(member))))
  const page = found.flatMap((record) => (record ? [decode<T>(record)] : []))
  return { page, next: members.length > limit ? shown.at(-1) : undefined }
}

/** Returns the id in a member. */
const idOf = (member: string): string => member.slice(member.indexOf(':') + 1)

/** Number of entries of an index that one call reads or removes. */
const BATCH = 500

/** Removes, in batches, the entries of an index whose ids `fits` accepts, and the record of each for which `keyOf` returns a store key. */
export async function removeFromIndex(
  records: Records,
  index: string,
  fits: (id: string) => boolean,
  keyOf?: (id: string) => string,
): Promise<void> {
  for (let before: string | undefined; ; ) {
    const members = await records.page(index, { limit: BATCH, ...(before !== undefined && { before }) })
    const dropped = members.filter((member) => fits(idOf(member)))
    const writes = dropped.flatMap((member): Write[] => [
      ...(keyOf ? [{ remove: keyOf(idOf(member)) }] : []),
      { index, drop: member },
    ])
    if (writes.length > 0) await records.write(writes)
    if (members.length < BATCH) return
    before = members.at(-1)
  }
}

/** The writes of a request, and its answer after them. */
export interface Plan<Answer> {
  readonly writes: readonly Write[]
  readonly answer: Answer
}

/** An answer, and true if it is that of an earlier request. */
export interface Outcome<Answer> {
  readonly answer: Answer
  readonly replayed: boolean
}

/** Identity of a request. Requests with the same identity are repetitions. */
export interface RequestIdentity {
  readonly caller: { readonly id: string }
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

/** Returns the value of an `idempotency-key` header. Throws a `Problem` (invalid_request) for an invalid one. */
export function checkedKey(key: string | undefined): string | undefined {
  if (key === undefined || KEY_PATTERN.test(key)) return key
  throw invalid([{ path: 'idempotency-key', message: 'must be 1 to 255 printable ASCII characters' }])
}

/**
 * Carries out plans, once for each idempotency key of a caller and path. The answer is stored **in the same atomic write** as the plan's
 * changes, so neither is ever stored alone. Of concurrent duplicates one wins, and the others return its answer. An answer may contain a
 * key's secret, so it is stored sealed by the keyring, for 24 hours.
 */
export class Idempotency {
  readonly #env: Pick<RecordsEnvironment, 'records' | 'keyring'>

  constructor(env: Pick<RecordsEnvironment, 'records' | 'keyring'>) {
    this.#env = env
  }

  /**
   * Makes a plan and carries it out. After a concurrent write of another process it starts again. Without an idempotency key the answer is
   * not stored. Rejects with a `Problem`: invalid_request for an invalid key, conflict for a known key with another body.
   */
  async run<Answer>(request: RequestIdentity, plan: () => Promise<Plan<Answer>>): Promise<Outcome<Answer>> {
    const key = checkedKey(request.idempotencyKey)
    const recordKey = `{control}:idempotency:${sha256(JSON.stringify([request.caller.id, request.path, key]))}`
    const fingerprint = sha256(JSON.stringify(request.body ?? null))
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (key !== undefined) {
        const [record] = await this.#env.records.read([recordKey])
        if (record) return { answer: this.#recall(record, recordKey, fingerprint) as Answer, replayed: true }
      }
      const { writes, answer } = await plan()
      const memory = key === undefined ? [] : [this.#remember(recordKey, { fingerprint, answer })]
      if (await this.#env.records.write([...writes, ...memory])) return { answer, replayed: false }
    }
    throw new Problem('conflict', 'Other requests change the same records; try again.')
  }

  #remember(recordKey: string, remembered: Remembered): Write {
    const value = this.#env.keyring.seal(JSON.stringify(remembered), recordKey)
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
      text = this.#env.keyring.unseal(record.value, recordKey)
    } catch {
      throw new Problem(
        'conflict',
        'This idempotency-key was used, but its answer is unreadable (KEYRING_SECRET was changed); use a new key.',
      )
    }
    return JSON.parse(text)
  }
}
