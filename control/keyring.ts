/** The keyring: makes key pairs, keeps their private halves sealed under KEYRING_SECRET, and opens them to sign. */
import { hkdfSync } from 'node:crypto'
import { xchacha20poly1305 } from '@noble/ciphers/chacha.js'
import { PublicProtocol } from 'paseto'
import {
  ExportPublicKeyFactory,
  ExportSecretKeyFactory,
  GenerateKeyPairFactory,
  ImportSecretKeyFactory,
  ImportWrappingKeyFactory,
  type WrappingKey,
} from 'paseto/v4/public'
import type { Random } from '../shared/random.ts'
import type { Records } from '../shared/store/port.ts'
import type { SigningKey } from '../shared/tokens.ts'
import { UnwrapSecretKeyFactory, wrapSecretKeyFactory } from './pie.ts'

/** A key pair as the store holds it. */
export interface StoredPair {
  /** PASERK `k4.public.…`. */
  readonly public_key: string
  /** PASERK `k4.secret-wrap.pie.…`, or `k4.secret.…` when it was made without a KEYRING_SECRET. */
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

/** 32 bytes for one purpose from the secret: HKDF-SHA256 (RFC 5869), salt `roomful keyring v1`, info the purpose. */
const subkey = (secret: string, purpose: string): Uint8Array =>
  new Uint8Array(hkdfSync('sha256', secret, 'roomful keyring v1', purpose, 32))

const protocolOf = (random: Random) =>
  new PublicProtocol(
    GenerateKeyPairFactory,
    ExportPublicKeyFactory,
    ExportSecretKeyFactory,
    ImportSecretKeyFactory,
    ImportWrappingKeyFactory,
    wrapSecretKeyFactory(random),
    UnwrapSecretKeyFactory,
  )

/**
 * Key pairs and other things that must not lie open in the store. Without a secret (development on loopback only) everything is stored
 * in plain: PASERK `k4.secret`, and texts as they are.
 */
export class Keyring {
  readonly #protocol: ReturnType<typeof protocolOf>
  readonly #random: Random
  readonly #secret: string | undefined
  readonly #box_key: Uint8Array | undefined
  readonly #opened = new Map<string, Promise<SigningKey>>()
  #wrapping: Promise<WrappingKey> | undefined

  constructor(secret: string | undefined, random: Random) {
    this.#protocol = protocolOf(random)
    this.#random = random
    this.#secret = secret
    this.#box_key = secret === undefined ? undefined : subkey(secret, 'texts')
  }

  /** Makes a new Ed25519 pair (from the platform's own generator) and seals its private half. */
  async createPair(): Promise<StoredPair> {
    const { publicKey, secretKey } = await this.#protocol.GenerateKeyPair({ extractable: true })
    const wrapping = await this.#wrappingKey()
    return {
      public_key: await this.#protocol.ExportPublicKey(publicKey),
      secret_key: wrapping
        ? await this.#protocol.WrapSecretKey(secretKey, wrapping)
        : await this.#protocol.ExportSecretKey(secretKey),
    }
  }

  /** The private half of a stored pair, ready to sign. The last 1,000 stay open. Rejects when it was sealed under another secret. */
  signingKey(pair: StoredPair): Promise<SigningKey> {
    const known = this.#opened.get(pair.secret_key)
    const key = known ?? this.#open(pair.secret_key)
    this.#opened.delete(pair.secret_key)
    this.#opened.set(pair.secret_key, key)
    if (this.#opened.size > OPENED_KEYS) this.#opened.delete(this.#opened.keys().next().value!)
    key.catch(() => this.#opened.delete(pair.secret_key))
    return key
  }

  /** Encrypts a text for the store (XChaCha20-Poly1305); `context` must be the same when it is opened. */
  seal(text: string, context: string): Uint8Array {
    const bytes = new TextEncoder().encode(text)
    if (!this.#box_key) return bytes
    const nonce = this.#random.bytes(BOX_NONCE_BYTES)
    const box = xchacha20poly1305(this.#box_key, nonce, new TextEncoder().encode(context)).encrypt(bytes)
    return Buffer.concat([nonce, box])
  }

  /** The text of a `seal`. Throws when it was sealed under another secret or context, or was changed. */
  unseal(sealed: Uint8Array, context: string): string {
    if (!this.#box_key) return new TextDecoder().decode(sealed)
    const nonce = Uint8Array.from(sealed.subarray(0, BOX_NONCE_BYTES))
    const box = Uint8Array.from(sealed.subarray(BOX_NONCE_BYTES))
    const opener = xchacha20poly1305(this.#box_key, nonce, new TextEncoder().encode(context))
    return new TextDecoder().decode(opener.decrypt(box))
  }

  /**
   * Checks, before anything is signed, that the store's keys were sealed under this secret, and notes it on first use. A store that was
   * used without a secret may be taken over with one: new keys are sealed, the old stay readable. Rejects with `WrongKeyring` otherwise.
   */
  async check(records: Records): Promise<void> {
    const mine =
      this.#secret === undefined ? PLAIN : Buffer.from(subkey(this.#secret, 'check')).toString('base64url')
    for (;;) {
      const [record] = await records.read([RECORD])
      const stored = record && new TextDecoder().decode(record.value)
      if (stored === mine) return
      if (stored !== undefined && mine === PLAIN)
        throw new WrongKeyring(
          'The keys in the store are sealed: set KEYRING_SECRET to the secret they were made under.',
        )
      if (stored !== undefined && stored !== PLAIN)
        throw new WrongKeyring(
          'The keys in the store are sealed under another KEYRING_SECRET than the one given.',
        )
      const value = new TextEncoder().encode(mine)
      if (await records.write([{ put: RECORD, value, if_version: record?.version ?? 0 }])) return
    }
  }

  async #open(secret_key: string): Promise<SigningKey> {
    if (secret_key.startsWith('k4.secret.'))
      return this.#protocol.ImportSecretKey(secret_key as `k4.secret.${string}`)
    const wrapping = await this.#wrappingKey()
    if (!wrapping) throw new WrongKeyring('The private key is sealed and this process has no KEYRING_SECRET.')
    return this.#protocol.UnwrapSecretKey(secret_key as `k4.secret-wrap.pie.${string}`, wrapping)
  }

  #wrappingKey(): Promise<WrappingKey> | undefined {
    if (this.#secret === undefined) return undefined
    this.#wrapping ??= this.#protocol.ImportWrappingKey(subkey(this.#secret, 'paserk wrapping key'), {
      extractable: true,
    })
    return this.#wrapping
  }
}
