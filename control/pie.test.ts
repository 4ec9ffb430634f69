import { PublicProtocol } from 'paseto'
import {
  ExportSecretKeyFactory,
  GenerateKeyPairFactory,
  ImportSecretKeyFactory,
  ImportWrappingKeyFactory,
} from 'paseto/v4/public'
import { describe, expect, it } from 'vitest'
import { type Random, systemRandom } from '../shared/random.ts'
import { UnwrapSecretKeyFactory, wrapSecretKeyFactory } from './pie.ts'

const protocolWith = (random: Random) =>
  new PublicProtocol(
    GenerateKeyPairFactory,
    ImportSecretKeyFactory,
    ExportSecretKeyFactory,
    ImportWrappingKeyFactory,
    wrapSecretKeyFactory(random),
    UnwrapSecretKeyFactory,
  )

/** From paseto-standard/test-vectors, PASERK/k4.secret-wrap.pie.json. */
const VECTORS = [
  {
    name: 'k4.secret-wrap.pie-1',
    unwrapped:
      '00000000000000000000000000000000000000000000000000000000000000003b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29',
    wrapping_key: '707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f',
    paserk:
      'k4.secret-wrap.pie.NC6xj8t0VuK-0KE7Fy6PAKtbQwEFRyQMe39A0ctrkaIcS1zjVgvYTN6cu1AZM7bU2bz-jzKclAWu3Bln6xhSOsUqcQPi6Kw_LtKXLRCeggiuPnaqWfIT4qacjXtXhFvOvDPye21fbWOPuoNM9VppuTzN0LzYDYgNYCPsbWt2n4c',
  },
  {
    name: 'k4.secret-wrap.pie-2',
    unwrapped:
      '707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f1ce56a48c82ff99162a14bc544612674e5d61fb9317e65d4055780fdbcb4dc35',
    wrapping_key: 'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',
    paserk:
      'k4.secret-wrap.pie.dYA31PP6a-d1Cyk3xt2Dz8kpGSlbpwkG5UyrLcgRspSvq1RUO1UQicQNE3-eXYUYGhXrG9zAVnR93tize-IPtiFEyO70U3bWEXd0uU7asDJQ19I3V2mf5OPIcKQl-TnY0XXtw5DPqY1yEFEbA9WTiDG0I3z6KTWA2z09NWm0OHQ',
  },
] as const

const hex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'hex'))
const plain = (text: string) => `k4.secret.${Buffer.from(text, 'hex').toString('base64url')}` as const
const nonceOf = (paserk: string): Uint8Array =>
  new Uint8Array(Buffer.from(paserk.split('.')[3]!, 'base64url').subarray(32, 64))

describe.each(VECTORS)('the official vector $name', ({ unwrapped, wrapping_key: wrappingKey, paserk }) => {
  const protocol = protocolWith({ ...systemRandom, bytes: () => nonceOf(paserk) })

  it('unwraps', async () => {
    const wrapping = await protocol.ImportWrappingKey(hex(wrappingKey), { extractable: true })
    const key = await protocol.UnwrapSecretKey(paserk, wrapping, { extractable: true })
    expect(await protocol.ExportSecretKey(key)).toBe(plain(unwrapped))
  })

  it('is what wrapping gives under its nonce', async () => {
    const wrapping = await protocol.ImportWrappingKey(hex(wrappingKey), { extractable: true })
    const key = await protocol.ImportSecretKey(plain(unwrapped), { extractable: true })
    expect(await protocol.WrapSecretKey(key, wrapping)).toBe(paserk)
  })
})

describe('a wrapped key', () => {
  const protocol = protocolWith(systemRandom)
  const wrappingKey = (fill: number) =>
    protocol.ImportWrappingKey(new Uint8Array(32).fill(fill), { extractable: true })

  it('opens only with its own wrapping key', async () => {
    const { secretKey } = await protocol.GenerateKeyPair({ extractable: true })
    const sealed = await protocol.WrapSecretKey(secretKey, await wrappingKey(1))
    await expect(protocol.UnwrapSecretKey(sealed, await wrappingKey(2))).rejects.toThrow('wrapping key')
  })

  it('does not open once any part of it was changed', async () => {
    const { secretKey } = await protocol.GenerateKeyPair({ extractable: true })
    const sealed = await protocol.WrapSecretKey(secretKey, await wrappingKey(1))
    const bytes = Buffer.from(sealed.split('.')[3]!, 'base64url')
    for (const at of [0, 31, 32, 63, 64, 127]) {
      const changed = Buffer.from(bytes)
      changed[at]! ^= 1
      const paserk = `k4.secret-wrap.pie.${changed.toString('base64url')}` as const
      await expect(protocol.UnwrapSecretKey(paserk, await wrappingKey(1))).rejects.toThrow()
    }
    const short = `k4.secret-wrap.pie.${bytes.subarray(0, 100).toString('base64url')}` as const
    await expect(protocol.UnwrapSecretKey(short, await wrappingKey(1))).rejects.toThrow('length')
  })

  it('is another one each time', async () => {
    const { secretKey } = await protocol.GenerateKeyPair({ extractable: true })
    const wrapping = await wrappingKey(1)
    const first = await protocol.WrapSecretKey(secretKey, wrapping)
    expect(await protocol.WrapSecretKey(secretKey, wrapping)).not.toBe(first)
  })
})
