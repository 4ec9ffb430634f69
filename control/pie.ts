/**
 * PASERK k4.secret-wrap.pie: private keys wrapped with a symmetric key, as the PASERK specification's "PIE" wrapping has it
 * (https://github.com/paseto-standard/paserk/blob/master/operations/Wrap/pie.md, versions 2 and 4). `paseto` leaves this operation to
 * its users; here it is built from BLAKE2b and XChaCha20.
 */
import { timingSafeEqual } from 'node:crypto'
import { xchacha20 } from '@noble/ciphers/chacha.js'
import { blake2b } from '@noble/hashes/blake2.js'
import { InvalidPASERKError, PublicProtocol, PublicUnwrapSecretKey, PublicWrapSecretKey } from 'paseto'
import {
  ExportSecretKeyFactory,
  ExportWrappingKeyFactory,
  ImportSecretKeyFactory,
  type SecretKey,
  type WrappingKey,
} from 'paseto/v4/public'
import type { Random } from '../shared/random.ts'

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

/** The capability that wraps an extractable secret key with an extractable wrapping key. */
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

/** The capability that unwraps what `wrapSecretKeyFactory` wrapped. Rejects with `InvalidPASERKError` under another wrapping key. */
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
