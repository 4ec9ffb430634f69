import { PublicProtocol } from 'paseto'
import {
  ExportSecretKeyFactory,
  GenerateKeyPairFactory,
  ImportSecretKeyFactory,
  ImportWrappingKeyFactory,
} from 'paseto/v4/public'
import { describe, expect, it } from 'vitest'
import { timestamp } from '../shared/clock.ts'
import { type Random, systemRandom } from '../shared/random.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import type { Store } from '../shared/store/port.ts'
import { importVerifyKey, isSigned, issueToken, readToken } from '../shared/tokens.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { Keyring, UnwrapSecretKeyFactory, WrongKeyring, wrapSecretKeyFactory } from './keyring.ts'
import { Keys, resealAll } from './keys.ts'
import { Projects } from './projects.ts'
import type { RecordsEnvironment } from './records.ts'

describe('Keyring', () => {
  const clock = new FakeClock()
  const keyring = (secret: string | undefined) => new Keyring(secret, systemRandom)
  const claims = {
    project_id: 'prj_one',
    issued_at: timestamp(clock.now()),
    expires_at: timestamp(clock.now() + 60_000),
  }

  describe('a keyring with a secret', () => {
    it('makes pairs with a sealed private half, which signs for the public half', async () => {
      const pair = await keyring('one').createPair()
      expect(pair.public_key).toMatch(/^k4\.public\.[\w-]{43}$/)
      expect(pair.secret_key).toMatch(/^k4\.secret-wrap\.pie\./)
      const token = await issueToken(await keyring('one').signingKey(pair), claims)
      const verifyKey = await importVerifyKey(pair.public_key)
      expect(isSigned(readToken(token), verifyKey)).toBe(true)
    })

    it('opens nothing that was sealed under another secret, and works after the failure', async () => {
      const pair = await keyring('one').createPair()
      const other = keyring('two')
      await expect(other.signingKey(pair)).rejects.toThrow('wrapping key')
      await expect(keyring(undefined).signingKey(pair)).rejects.toThrow(WrongKeyring)
      await expect(other.signingKey(await other.createPair())).resolves.toBeDefined()
    })

    it('seals texts so that only the same secret and context open them', () => {
      const ring = keyring('one')
      const sealed = ring.seal('the secret of a key', 'a')
      expect(Buffer.from(sealed).toString('latin1')).not.toContain('secret')
      expect(keyring('one').unseal(sealed, 'a')).toBe('the secret of a key')
      expect(() => ring.unseal(sealed, 'b')).toThrow()
      expect(() => keyring('two').unseal(sealed, 'a')).toThrow()
    })
  })

  describe('a keyring without a secret', () => {
    it('stores pairs and texts in plain, and signs', async () => {
      const ring = keyring(undefined)
      const pair = await ring.createPair()
      expect(pair.secret_key).toMatch(/^k4\.secret\./)
      await expect(ring.signingKey(pair)).resolves.toBeDefined()
      expect(ring.unseal(ring.seal('text', 'a'), 'a')).toBe('text')
    })
  })

  describe('a store', () => {
    it('rejects a process with another secret, or with none', async () => {
      const { records } = memoryStore({ clock })
      await keyring('one').check(records)
      await keyring('one').check(records)
      await expect(keyring('two').check(records)).rejects.toThrow('another KEYRING_SECRET')
      await expect(keyring(undefined).check(records)).rejects.toThrow('set KEYRING_SECRET')
    })

    it('may get its first secret later: old pairs stay usable, and processes without a secret are rejected', async () => {
      const { records } = memoryStore({ clock })
      await keyring(undefined).check(records)
      const pair = await keyring(undefined).createPair()
      await keyring('one').check(records)
      await expect(keyring('one').signingKey(pair)).resolves.toBeDefined()
      await expect(keyring(undefined).check(records)).rejects.toThrow(WrongKeyring)
    })

    it('accepts the first of two concurrent secrets', async () => {
      const { records } = memoryStore({ clock })
      const outcomes = await Promise.allSettled([
        keyring('one').check(records),
        keyring('two').check(records),
      ])
      expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
    })
  })
})

describe('the wrapping of private keys', () => {
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

    it('is the result of wrapping with its nonce', async () => {
      const wrapping = await protocol.ImportWrappingKey(hex(wrappingKey), { extractable: true })
      const key = await protocol.ImportSecretKey(plain(unwrapped), { extractable: true })
      expect(await protocol.WrapSecretKey(key, wrapping)).toBe(paserk)
    })
  })

  describe('a wrapped key', () => {
    const protocol = protocolWith(systemRandom)
    const wrappingKey = (fill: number) =>
      protocol.ImportWrappingKey(new Uint8Array(32).fill(fill), { extractable: true })

    it('opens only with the key that wrapped it', async () => {
      const { secretKey } = await protocol.GenerateKeyPair({ extractable: true })
      const sealed = await protocol.WrapSecretKey(secretKey, await wrappingKey(1))
      await expect(protocol.UnwrapSecretKey(sealed, await wrappingKey(2))).rejects.toThrow('wrapping key')
    })

    it('does not open after a change of any part', async () => {
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

    it('is different each time', async () => {
      const { secretKey } = await protocol.GenerateKeyPair({ extractable: true })
      const wrapping = await wrappingKey(1)
      const first = await protocol.WrapSecretKey(secretKey, wrapping)
      expect(await protocol.WrapSecretKey(secretKey, wrapping)).not.toBe(first)
    })
  })
})

describe('sealing again', () => {
  const clock = new FakeClock()

  interface Vault extends RecordsEnvironment {
    readonly projects: Projects
    readonly keys: Keys
  }

  /** Returns what a process with these secrets can do with the store. */
  function vault({ records, bus }: Store, secrets: string | undefined): Vault {
    const env = { records, bus, clock, random: systemRandom, keyring: new Keyring(secrets, systemRandom) }
    return { ...env, projects: new Projects(env), keys: new Keys(env) }
  }

  /** Makes a project with `count` keys. */
  async function makeProject({ records, projects, keys }: Vault, count: number): Promise<string> {
    const { project, writes } = await projects.draft('games')
    await records.write(writes)
    for (let i = 0; i < count; i++) {
      const draft = await keys.draft(project.id, { name: null, scopes: [] })
      await records.write(draft.writes)
    }
    return project.id
  }

  const allKeys = async (keys: Keys, projectId: string) =>
    (await keys.page(projectId, { limit: 200, before: undefined })).keys

  /** Opens every private key of a project. */
  async function openAll({ projects, keys, keyring }: Vault, projectId: string): Promise<number> {
    const project = (await projects.find(projectId))!
    const pairs = [project.pair, ...(await allKeys(keys, projectId)).map((key) => key.pair)]
    await Promise.all(pairs.map((pair) => keyring.signingKey(pair)))
    return pairs.length
  }

  describe('a keyring secret', () => {
    it('changes while processes serve: both secrets open, the new one seals, and then the old one is not needed', async () => {
      const store = memoryStore({ clock })
      const old = vault(store, 'old secret')
      await old.keyring.check(store.records)
      const projectId = await makeProject(old, 3)

      const before = vault(store, 'old secret,new secret')
      const after = vault(store, 'new secret,old secret')
      for (const { keyring } of [before, after]) await keyring.check(store.records)
      const madeMeanwhile = await makeProject(after, 1)
      expect([await openAll(before, projectId), await openAll(before, madeMeanwhile)]).toEqual([4, 2])
      await expect(vault(store, 'new secret').keyring.check(store.records)).rejects.toThrow(
        'another KEYRING_SECRET',
      )

      expect(await resealAll(after, () => {})).toEqual({ records: 6, resealed: 4 })

      const alone = vault(store, 'new secret')
      await alone.keyring.check(store.records)
      expect([await openAll(alone, projectId), await openAll(alone, madeMeanwhile)]).toEqual([4, 2])
      await expect(old.keyring.check(store.records)).rejects.toThrow('another KEYRING_SECRET')
      await expect(openAll(vault(store, 'old secret'), projectId)).rejects.toThrow('another wrapping key')
    })

    it('seals plain keys when the store gets its first secret', async () => {
      const store = memoryStore({ clock })
      const projectId = await makeProject(vault(store, undefined), 2)
      const sealed = vault(store, 'a secret')
      await sealed.keyring.check(store.records)
      expect(await resealAll(sealed, () => {})).toEqual({ records: 3, resealed: 3 })
      await expect(openAll(vault(store, undefined), projectId)).rejects.toThrow('no KEYRING_SECRET')
      expect(await openAll(sealed, projectId)).toBe(3)
    })

    it('seals no key again that is already sealed under the first secret', async () => {
      const store = memoryStore({ clock })
      const one = vault(store, 'one,other')
      await makeProject(one, 1)
      expect(await resealAll(one, () => {})).toEqual({ records: 2, resealed: 0 })
    })

    it('causes an error that names the record, and no change, if it opens no key', async () => {
      const store = memoryStore({ clock })
      const right = vault(store, 'right')
      const projectId = await makeProject(right, 1)
      const failed = resealAll(vault(store, 'wrong,also wrong'), () => {})
      await expect(failed).rejects.toThrow(WrongKeyring)
      await expect(failed).rejects.toThrow(
        `${projectId}: The private key was sealed with another wrapping key`,
      )
      expect(await openAll(right, projectId)).toBe(2)
    })

    it('does not overwrite a concurrent change of a record', async () => {
      const store = memoryStore({ clock })
      const old = vault(store, 'old')
      const projectId = await makeProject(old, 1)
      const [key] = await allKeys(old.keys, projectId)
      const racing: Vault = {
        ...vault(store, 'new,old'),
        records: {
          ...store.records,
          read: (keys) => store.records.read(keys),
          page: (index, options) => store.records.page(index, options),
          write: async (writes) => {
            if (writes.some((write) => 'put' in write && write.put.includes(key!.id)))
              await old.keys.revoke(projectId, key!.id)
            return store.records.write(writes)
          },
        },
      }
      await resealAll(racing, () => {})
      const [after] = await allKeys(vault(store, 'new').keys, projectId)
      expect(after!.revoked_at).not.toBeNull()
      expect(await openAll(vault(store, 'new'), projectId)).toBe(2)
    })
  })
})
