import { createHash, timingSafeEqual } from 'node:crypto'
import { timestamp } from '../shared/clock.ts'
import { newId, randomToken } from '../shared/ids.ts'
import { publishKeyNews } from '../shared/key-news.ts'
import { Problem } from '../shared/problem.ts'
import type { Write } from '../shared/store/port.ts'
import { type Keyring, type StoredPair, WrongKeyring } from './keyring.ts'
import { Projects, projectKey } from './projects.ts'
import {
  CreationOrder,
  decode,
  encode,
  type PageRequest,
  type RecordsEnvironment,
  readPage,
  removeFromIndex,
} from './records.ts'

/** A rotation makes an active key retiring, and the end of its grace time makes it revoked. A revocation makes either revoked immediately. */
export type KeyStatus = 'active' | 'retiring' | 'revoked'

/** Stored form of a key. Times are milliseconds since 1970. The status follows from the times. */
export interface KeyRecord {
  readonly id: string
  readonly project_id: string
  readonly name: string | null
  readonly scopes: readonly string[]
  readonly created_at: number
  /** End of the grace time of a rotated key. */
  readonly retires_at: number | null
  /** Time of the call that revoked the key. */
  readonly revoked_at: number | null
  readonly rotated_from: string | null
  /** SHA-256 of the secret. The secret is not stored. */
  readonly secret_hash: string
  readonly pair: StoredPair
}

/** A key in answers of the API. */
interface KeyView {
  readonly id: string
  readonly project_id: string
  readonly name: string | null
  readonly scopes: readonly string[]
  readonly status: KeyStatus
  readonly created_at: string
  readonly retires_at: string | null
  readonly revoked_at: string | null
  readonly rotated_from: string | null
}

/** Default scope of a key, which may issue tokens. */
export const MINT_SCOPE = 'token:mint'
/** Scope of a key that may list and read rooms. */
export const ROOM_READ_SCOPE = 'room:read'
/** Scope of a key that may call, open and close rooms and reserve their seats. */
export const ROOM_CALL_SCOPE = 'room:call'
/** Scope of a key that may act on players. */
export const PLAYER_SCOPE = 'player:manage'

const SECRET_PREFIX = 'rfsk_'
const SECRET_PATTERN = /^rfsk_([\w-]{16})\.[\w-]{43}$/

/** Returns true if a credential has the prefix of a key's secret. */
export const looksLikeSecret = (credential: string): boolean => credential.startsWith(SECRET_PREFIX)

const digest = (secret: string): Buffer => createHash('sha256').update(secret).digest()

/** Returns the store key of a key's record. */
const keyKey = (id: string): string => `{control}:key:${id}`
const indexOf = (projectId: string): string => `{control}:keys:${projectId}`

/** Returns the time at which `key` was revoked or its grace time ended. Null: it is valid at `now`. */
function revocationTime(key: KeyRecord, now: number): number | null {
  if (key.revoked_at !== null) return key.revoked_at
  return key.retires_at !== null && key.retires_at <= now ? key.retires_at : null
}

/** Returns the status of `key` at `now`. */
export function keyStatus(key: KeyRecord, now: number): KeyStatus {
  if (revocationTime(key, now) !== null) return 'revoked'
  return key.retires_at === null ? 'active' : 'retiring'
}

/** Returns `key` for an answer of the API at `now`. */
export function keyView(key: KeyRecord, now: number): KeyView {
  const revokedAt = revocationTime(key, now)
  return {
    id: key.id,
    project_id: key.project_id,
    name: key.name,
    scopes: key.scopes,
    status: keyStatus(key, now),
    created_at: timestamp(key.created_at),
    retires_at: key.retires_at === null ? null : timestamp(key.retires_at),
    revoked_at: revokedAt === null ? null : timestamp(revokedAt),
    rotated_from: key.rotated_from,
  }
}

/** A new key, its secret, which is shown once, and the writes that store the key. */
export interface KeyDraft {
  readonly key: KeyRecord
  readonly secret: string
  readonly writes: readonly Write[]
}

/** The keys of all projects. */
export class Keys {
  readonly #env: RecordsEnvironment
  readonly #order: CreationOrder

  constructor(env: RecordsEnvironment) {
    this.#env = env
    this.#order = new CreationOrder(env.clock)
  }

  /** Makes a new key. The caller stores its writes. */
  async draft(
    projectId: string,
    wish: { name: string | null; scopes: readonly string[]; rotatedFrom?: string },
  ): Promise<KeyDraft> {
    const id = newId('key', this.#env.random)
    const secret = `${SECRET_PREFIX}${id.slice('key_'.length)}.${randomToken(this.#env.random, 43)}`
    const key: KeyRecord = {
      id,
      project_id: projectId,
      name: wish.name,
      scopes: wish.scopes,
      created_at: this.#env.clock.now(),
      retires_at: null,
      revoked_at: null,
      rotated_from: wish.rotatedFrom ?? null,
      secret_hash: digest(secret).toString('base64url'),
      pair: await this.#env.keyring.createPair(),
    }
    const writes: Write[] = [
      { put: keyKey(id), value: encode(key), ifVersion: 0 },
      { index: indexOf(projectId), add: this.#order.member(id) },
    ]
    return { key, secret, writes }
  }

  /**
   * Makes the successor of an active key. The old key retires in the same write and stays valid for `graceMs`. Rejects with a `Problem`:
   * key_not_found, or conflict if the key is not active.
   */
  async draftRotation(projectId: string, keyId: string, graceMs: number): Promise<KeyDraft> {
    const { key: old, version } = await this.#require(projectId, keyId)
    const now = this.#env.clock.now()
    const status = keyStatus(old, now)
    if (status !== 'active')
      throw new Problem('conflict', `The key ${keyId} is ${status}: only an active key can be rotated.`)
    const fresh = await this.draft(projectId, { name: old.name, scopes: old.scopes, rotatedFrom: old.id })
    const value = encode({ ...old, retires_at: now + graceMs })
    return { ...fresh, writes: [{ put: keyKey(old.id), value, ifVersion: version }, ...fresh.writes] }
  }

  /** Revokes a key immediately and notifies every node. If the key is already revoked, the nodes are notified again. */
  async revoke(projectId: string, keyId: string): Promise<KeyRecord> {
    for (;;) {
      const { key, version } = await this.#require(projectId, keyId)
      const now = this.#env.clock.now()
      const done = keyStatus(key, now) === 'revoked'
      const revoked = done ? key : { ...key, revoked_at: now }
      if (
        done ||
        (await this.#env.records.write([{ put: keyKey(keyId), value: encode(revoked), ifVersion: version }]))
      ) {
        await this.announce(projectId, keyId, 'revoked')
        return revoked
      }
    }
  }

  /** Notifies every process of the status of a key. */
  async announce(projectId: string, keyId: string, status: KeyStatus): Promise<void> {
    await publishKeyNews(this.#env.bus, { project_id: projectId, key_id: keyId, status })
  }

  /** Returns a key of a project. Undefined: the project has no key with this id. */
  async find(projectId: string, keyId: string): Promise<KeyRecord | undefined> {
    return (await this.#read(projectId, keyId))?.key
  }

  /** Returns the key of a secret, whatever its status. */
  async findBySecret(secret: string): Promise<KeyRecord | undefined> {
    const match = SECRET_PATTERN.exec(secret)
    if (!match) return undefined
    const [record] = await this.#env.records.read([keyKey(`key_${match[1]}`)])
    const key = record && decode<KeyRecord>(record)
    if (!key) return undefined
    return timingSafeEqual(digest(secret), Buffer.from(key.secret_hash, 'base64url')) ? key : undefined
  }

  /** Returns one page of the keys of a project, newest first. */
  async page(
    projectId: string,
    request: PageRequest,
  ): Promise<{ keys: KeyRecord[]; next: string | undefined }> {
    const { page, next } = await readPage<KeyRecord>(this.#env.records, indexOf(projectId), keyKey, request)
    return { keys: page, next }
  }

  /** Removes every key of a project. */
  removeAll(projectId: string): Promise<void> {
    return removeFromIndex(this.#env.records, indexOf(projectId), () => true, keyKey)
  }

  async #require(projectId: string, keyId: string): Promise<{ key: KeyRecord; version: number }> {
    const found = await this.#read(projectId, keyId)
    if (!found) throw noKey(projectId, keyId)
    return found
  }

  async #read(projectId: string, keyId: string): Promise<{ key: KeyRecord; version: number } | undefined> {
    const [record] = await this.#env.records.read([keyKey(keyId)])
    const key = record && decode<KeyRecord>(record)
    return key?.project_id === projectId ? { key, version: record!.version } : undefined
  }
}

/** Returns the problem for a key that a project does not have. */
export const noKey = (projectId: string, keyId: string): Problem =>
  new Problem('key_not_found', `The project ${projectId} has no key ${keyId}.`, { isAbsence: true })

/** Number of records with a private key, and number of those that were sealed again. */
interface Resealed {
  readonly records: number
  readonly resealed: number
}

const PAGE = 200

/**
 * Seals every private key of the store under the keyring's first secret, and notes that in the store. Then the other secrets can be removed
 * from `KEYRING_SECRET`. It may run while control processes serve, and again after an interruption. It repeats until a round seals no key,
 * because processes may make keys during a round. Rejects with a `WrongKeyring` that names the record if none of the secrets opens a key.
 * Calls `progress` after each project.
 */
export async function resealAll(
  env: RecordsEnvironment,
  progress: (sofar: Resealed) => void,
): Promise<Resealed> {
  let sofar = { records: 0, resealed: 0 }
  for (;;) {
    const round = await resealOnce(env, ({ records, resealed }) =>
      progress({ records, resealed: sofar.resealed + resealed }),
    )
    sofar = { records: round.records, resealed: sofar.resealed + round.resealed }
    if (round.resealed === 0) break
  }
  await env.keyring.mark(env.records)
  return sofar
}

async function resealOnce(env: RecordsEnvironment, progress: (sofar: Resealed) => void): Promise<Resealed> {
  const sofar = { records: 0, resealed: 0 }
  const add = async (storeKey: string): Promise<void> => {
    sofar.records += 1
    if (await resealRecord(env, storeKey)) sofar.resealed += 1
  }
  const projects = new Projects(env)
  const keys = new Keys(env)
  for await (const { id } of everyOf(async (page) => {
    const { projects: items, next } = await projects.page(page)
    return { items, next }
  })) {
    await add(projectKey(id))
    for await (const key of everyOf(async (page) => {
      const { keys: items, next } = await keys.page(id, page)
      return { items, next }
    }))
      await add(keyKey(key.id))
    progress(sofar)
  }
  return sofar
}

/** Yields all items of a list that is read in pages. */
async function* everyOf<T>(
  read: (page: PageRequest) => Promise<{ readonly items: readonly T[]; readonly next: string | undefined }>,
): AsyncGenerator<T> {
  let before: string | undefined
  do {
    const { items, next } = await read({ limit: PAGE, before })
    yield* items
    before = next
  } while (before !== undefined)
}

/** Seals the key of a record again. Resolves with false if it was already sealed under the first secret. */
async function resealRecord({ records, keyring }: RecordsEnvironment, storeKey: string): Promise<boolean> {
  for (;;) {
    const [record] = await records.read([storeKey])
    if (!record) return false
    const value = decode<{ pair: StoredPair }>(record)
    const pair = await resealPair(keyring, value.pair, storeKey)
    if (!pair) return false
    const resealed = encode({ ...value, pair })
    if (await records.write([{ put: storeKey, value: resealed, ifVersion: record.version }])) return true
  }
}

async function resealPair(keyring: Keyring, pair: StoredPair, storeKey: string) {
  try {
    return await keyring.reseal(pair)
  } catch (error) {
    if (!(error instanceof WrongKeyring)) throw error
    throw new WrongKeyring(`${storeKey}: ${error.message}`, { cause: error })
  }
}
