import { hkdfSync } from 'node:crypto'
import { PublicProtocol } from 'paseto'
import { ImportWrappingKeyFactory, type WrappingKey } from 'paseto/v4/public'

const protocol = new PublicProtocol(ImportWrappingKeyFactory)

/** One secret that private keys and texts are sealed under, and what is derived from it. */
export class KeyringSecret {
  /** Tells this secret from others, and nothing about it. */
  readonly mark: string
  /** 32 bytes that texts are encrypted with. */
  readonly boxKey: Uint8Array
  readonly #secret: string
  #wrapping: Promise<WrappingKey> | undefined

  constructor(secret: string) {
    this.#secret = secret
    this.mark = Buffer.from(this.#subkey('check')).toString('base64url')
    this.boxKey = this.#subkey('texts')
  }

  /** What private keys are wrapped with. */
  wrappingKey(): Promise<WrappingKey> {
    this.#wrapping ??= protocol.ImportWrappingKey(this.#subkey('paserk wrapping key'), { extractable: true })
    return this.#wrapping
  }

  /** 32 bytes for one purpose: HKDF-SHA256 (RFC 5869), salt `roomful keyring v1`, info the purpose. */
  #subkey(purpose: string): Uint8Array {
    return new Uint8Array(hkdfSync('sha256', this.#secret, 'roomful keyring v1', purpose, 32))
  }
}
