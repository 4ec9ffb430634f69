/**
 * PASERK k4.secret-wrap.pie: private keys wrapped with a symmetric key, by the PASERK specification's "PIE" wrapping
 * (https://github.com/paseto-standard/paserk/blob/master/operations/Wrap/pie.md, versions 2 and 4). The package `paseto` does not include
 * this operation. This module builds it from BLAKE2b and XChaCha20.
 */
import { hkdfSync, timingSafeEqual } from 'node:crypto'
import { xchacha20, xchacha20poly1305 } from '@noble/ciphers/chacha.js'
import { blake2b } from '@noble/hashes/blake2.js'
import { InvalidPASERKError, PublicProtocol, PublicUnwrapSecretKey, PublicWrapSecretKey } from 'paseto'
import {
  ExportPublicKeyFactory,
  ExportSecretKeyFactory,
  ExportWrappingKeyFactory,
  GenerateKeyPairFactory,
  ImportSecretKeyFactory,
  ImportWrappingKeyFactory,
  type SecretKey,
  type WrappingKey,
} from 'paseto/v4/public'
import type { Random } from '../shared/random.ts'
import type { Records } from '../shared/store/port.ts'
import type { SigningKey } from '../shared/tokens.ts'

const HEADER = 'k4.secret-wrap.pie.'
const PLAIN_HEADER = 'k4.secret.'
const NONCE_BYTES = 32
const TAG_BYTES = 32
const SECRET_KEY_BYTES = 64

const serializer = new PublicProtocol(
  ExportSecretKeyFactory,
  ImportSecretKeyFactory,
  ExportWrappingKeyFactory,
)

/** Capability of `paseto` that wraps an extractable secret key with an extractable wrapping key. */
export const wrapSecretKeyFactory = (random: Random) =>
  PublicWrapSecretKey<4, SecretKey, WrappingKey, 'pie'>({
    version: 4,
    run: async (key, wrappingKey) => {
      const plain = await serializer.ExportSecretKey(key)
      const material = Buffer.from(plain.slice(PLAIN_HEADER.length), 'base64url')
      const sealed = wrap(
        material,
        await serializer.ExportWrappingKey(wrappingKey),
        random.bytes(NONCE_BYTES),
      )
      return `${HEADER}${sealed.toString('base64url')}`
    },
  })

/** Capability of `paseto` that unwraps keys of `wrapSecretKeyFactory`. Rejects with `InvalidPASERKError` for another wrapping key. */
export const UnwrapSecretKeyFactory = PublicUnwrapSecretKey<4, SecretKey, WrappingKey, 'pie'>({
  version: 4,
  run: async (paserk, wrappingKey, extractable) => {
    const encoded = paserk.startsWith(HEADER) ? paserk.slice(HEADER.length) : ''
    const sealed = Buffer.from(encoded, 'base64url')
    const material = unwrap(sealed, await serializer.ExportWrappingKey(wrappingKey))
    return serializer.ImportSecretKey(`${PLAIN_HEADER}${material.toString('base64url')}`, { extractable })
  },
})

function wrap(material: Uint8Array, wrappingKey: Uint8Array, nonce: Uint8Array): Buffer {
  const { encryptionKey, cipherNonce, authenticationKey } = derive(wrappingKey, nonce)
  const wrapped = xchacha20(encryptionKey, cipherNonce, material)
  return Buffer.concat([tag(authenticationKey, nonce, wrapped), nonce, wrapped])
}

function unwrap(sealed: Uint8Array, wrappingKey: Uint8Array): Buffer {
  if (sealed.length !== TAG_BYTES + NONCE_BYTES + SECRET_KEY_BYTES)
    throw new InvalidPASERKError('The wrapped secret key has the wrong length')
  const nonce = sealed.subarray(TAG_BYTES, TAG_BYTES + NONCE_BYTES)
  const wrapped = sealed.subarray(TAG_BYTES + NONCE_BYTES)
  const { encryptionKey, cipherNonce, authenticationKey } = derive(wrappingKey, nonce)
  if (!timingSafeEqual(sealed.subarray(0, TAG_BYTES), tag(authenticationKey, nonce, wrapped)))
    throw new InvalidPASERKError('The wrapped secret key was not wrapped with this wrapping key')
  return Buffer.from(xchacha20(encryptionKey, cipherNonce, wrapped))
}

function derive(wrappingKey: Uint8Array, nonce: Uint8Array) {
  const keyed = (domain: number, length: number) =>
    blake2b(Buffer.concat([Uint8Array.of(domain), nonce]), { key: wrappingKey, dkLen: length })
  const stream = keyed(0x80, 56)
  return {
    encryptionKey: stream.subarray(0, 32),
    cipherNonce: stream.subarray(32),
    authenticationKey: keyed(0x81, 32),
  }
}

const tag = (key: Uint8Array, nonce: Uint8Array, wrapped: Uint8Array): Uint8Array =>
  blake2b(Buffer.concat([Buffer.from(HEADER), nonce, wrapped]), { key, dkLen: TAG_BYTES })

/** Stored form of a key pair. */
export interface StoredPair {
  /** PASERK `k4.public.…`. */
  readonly public_key: string
  /** PASERK `k4.secret-wrap.pie.…`, or `k4.secret.…` if it was made without a KEYRING_SECRET. */
  readonly secret_key: string
}

/** The store's keys are sealed under another KEYRING_SECRET than this process has. */
export class WrongKeyring extends Error {
  override readonly name = 'WrongKeyring'
}

const RECORD = '{control}:keyring'
const PLAIN = 'plain'
const OPENED_KEYS = 1000
const BOX_NONCE_BYTES = 24

/** Extractable keys can be exported from the platform's crypto, which sealing needs. */
type KeyUse = { readonly extractable: boolean }
const EXTRACTABLE: KeyUse = { extractable: true }
const NOT_EXTRACTABLE: KeyUse = { extractable: false }

const protocolOf = (random: Random) =>
  new PublicProtocol(
    GenerateKeyPairFactory,
    ExportPublicKeyFactory,
    ExportSecretKeyFactory,
    ImportSecretKeyFactory,
    wrapSecretKeyFactory(random),
    UnwrapSecretKeyFactory,
  )

/**
 * Makes key pairs, and seals their private halves and secret texts for the store. Without a secret (development on loopback only) all are
 * stored in plain: keys as PASERK `k4.secret`. During a change of the secret there are several: the first seals, and each can open.
 */
export class Keyring {
  readonly #protocol: ReturnType<typeof protocolOf>
  readonly #random: Random
  readonly #secrets: readonly KeyringSecret[]
  readonly #opened = new Map<string, Promise<SigningKey>>()

  /** `secrets`: value of `KEYRING_SECRET`, separated by commas. */
  constructor(secrets: string | undefined, random: Random) {
    this.#protocol = protocolOf(random)
    this.#random = random
    this.#secrets = secrets?.split(',').map((secret) => new KeyringSecret(secret)) ?? []
  }

  /** Makes a new Ed25519 pair with the platform's generator, and seals its private half. */
  async createPair(): Promise<StoredPair> {
    const { publicKey, secretKey } = await this.#protocol.GenerateKeyPair({ extractable: true })
    return {
      public_key: await this.#protocol.ExportPublicKey(publicKey),
      secret_key: await this.#sealed(secretKey),
    }
  }

  /**
   * Returns the pair with its private half sealed under the first secret. Undefined: it already is, or there is no secret. Rejects with a
   * `WrongKeyring` if none of the secrets opens it.
   */
  async reseal(pair: StoredPair): Promise<StoredPair | undefined> {
    const [first] = this.#secrets
    if (!first) return undefined
    if (isWrapped(pair.secret_key) && (await this.#unwrap(pair.secret_key, first, NOT_EXTRACTABLE)))
      return undefined
    return { ...pair, secret_key: await this.#sealed(await this.#open(pair.secret_key, EXTRACTABLE)) }
  }

  /** Returns the private half of a stored pair for signing. The latest 1,000 are cached. Rejects with a `WrongKeyring` if none of the secrets opens it. */
  signingKey(pair: StoredPair): Promise<SigningKey> {
    const known = this.#opened.get(pair.secret_key)
    const key = known ?? this.#open(pair.secret_key, NOT_EXTRACTABLE)
    this.#opened.delete(pair.secret_key)
    this.#opened.set(pair.secret_key, key)
    if (this.#opened.size > OPENED_KEYS) this.#opened.delete(this.#opened.keys().next().value!)
    key.catch(() => this.#opened.delete(pair.secret_key))
    return key
  }

  /** Encrypts a text for the store (XChaCha20-Poly1305). `unseal` needs the same `context`. */
  seal(text: string, context: string): Uint8Array {
    const bytes = new TextEncoder().encode(text)
    const [first] = this.#secrets
    if (!first) return bytes
    const nonce = this.#random.bytes(BOX_NONCE_BYTES)
    const box = xchacha20poly1305(first.boxKey, nonce, new TextEncoder().encode(context)).encrypt(bytes)
    return Buffer.concat([nonce, box])
  }

  /** Decrypts a text of `seal`. Throws if it was sealed under another secret or context, or was changed. */
  unseal(sealed: Uint8Array, context: string): string {
    const [first, ...others] = this.#secrets
    if (!first) return new TextDecoder().decode(sealed)
    for (const secret of others) {
      try {
        return openBox(sealed, context, secret)
      } catch {
        // Another secret may open it. If none does, the error of the first secret is thrown.
      }
    }
    return openBox(sealed, context, first)
  }

  /**
   * Checks that the store's keys are sealed under one of the secrets, before a process signs with them. In a new store, it notes the first
   * secret. A store that was used without a secret accepts one: new keys are sealed, and the old stay readable. Rejects with `WrongKeyring`
   * otherwise.
   */
  async check(records: Records): Promise<void> {
    for (;;) {
      const record = await readMark(records)
      const marks = this.#secrets.map(({ mark }) => mark)
      if (record && [...marks, ...(marks.length === 0 ? [PLAIN] : [])].includes(record.mark)) return
      if (record && marks.length === 0)
        throw new WrongKeyring(
          'The keys in the store are sealed: set KEYRING_SECRET to the secret with which they were sealed.',
        )
      if (record && record.mark !== PLAIN)
        throw new WrongKeyring(
          'The keys in the store are sealed under another KEYRING_SECRET than the given one.',
        )
      if (await this.#writeMark(records, record?.version ?? 0)) return
    }
  }

  /** Notes in the store that all keys are sealed under the first secret. */
  async mark(records: Records): Promise<void> {
    while (!(await this.#writeMark(records, (await readMark(records))?.version ?? 0)));
  }

  #writeMark(records: Records, ifVersion: number): Promise<boolean> {
    const value = new TextEncoder().encode(this.#secrets[0]?.mark ?? PLAIN)
    return records.write([{ put: RECORD, value, ifVersion }])
  }

  async #sealed(key: SigningKey): Promise<string> {
    const [first] = this.#secrets
    if (!first) return this.#protocol.ExportSecretKey(key)
    return this.#protocol.WrapSecretKey(key, await first.wrappingKey())
  }

  async #open(secretKey: string, use: KeyUse): Promise<SigningKey> {
    if (!isWrapped(secretKey)) return this.#protocol.ImportSecretKey(secretKey as `k4.secret.${string}`, use)
    for (const secret of this.#secrets) {
      const key = await this.#unwrap(secretKey, secret, use)
      if (key) return key
    }
    throw new WrongKeyring(
      this.#secrets.length === 0
        ? 'The private key is sealed and this process has no KEYRING_SECRET.'
        : 'The private key was sealed with another wrapping key than that of KEYRING_SECRET.',
    )
  }

  /** Returns undefined if the key is sealed under another secret. */
  async #unwrap(secretKey: string, secret: KeyringSecret, use: KeyUse): Promise<SigningKey | undefined> {
    const paserk = secretKey as `k4.secret-wrap.pie.${string}`
    try {
      return await this.#protocol.UnwrapSecretKey(paserk, await secret.wrappingKey(), use)
    } catch (error) {
      if (error instanceof InvalidPASERKError) return undefined
      throw error
    }
  }
}

const isWrapped = (secretKey: string): boolean => secretKey.startsWith('k4.secret-wrap.')

/** Reads the mark of the secret under which the store's keys are sealed. */
async function readMark(records: Records): Promise<{ mark: string; version: number } | undefined> {
  const [record] = await records.read([RECORD])
  return record && { mark: new TextDecoder().decode(record.value), version: record.version }
}

function openBox(sealed: Uint8Array, context: string, { boxKey }: KeyringSecret): string {
  const nonce = Uint8Array.from(sealed.subarray(0, BOX_NONCE_BYTES))
  const box = Uint8Array.from(sealed.subarray(BOX_NONCE_BYTES))
  const opener = xchacha20poly1305(boxKey, nonce, new TextEncoder().encode(context))
  return new TextDecoder().decode(opener.decrypt(box))
}

const protocol = new PublicProtocol(ImportWrappingKeyFactory)

/** One secret, and the keys that are derived from it. */
class KeyringSecret {
  /** Identifies this secret without revealing it. */
  readonly mark: string
  /** 32-byte key that encrypts texts. */
  readonly boxKey: Uint8Array
  readonly #secret: string
  #wrapping: Promise<WrappingKey> | undefined

  constructor(secret: string) {
    this.#secret = secret
    this.mark = Buffer.from(this.#subkey('check')).toString('base64url')
    this.boxKey = this.#subkey('texts')
  }

  /** Returns the key that wraps private keys. */
  wrappingKey(): Promise<WrappingKey> {
    this.#wrapping ??= protocol.ImportWrappingKey(this.#subkey('paserk wrapping key'), { extractable: true })
    return this.#wrapping
  }

  /** Derives 32 bytes for one purpose: HKDF-SHA256 (RFC 5869), salt `roomful keyring v1`, info the purpose. */
  #subkey(purpose: string): Uint8Array {
    return new Uint8Array(hkdfSync('sha256', this.#secret, 'roomful keyring v1', purpose, 32))
  }
}
