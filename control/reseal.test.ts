import { describe, expect, it } from 'vitest'
import { systemRandom } from '../shared/random.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import type { Store } from '../shared/store/port.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { Keyring, WrongKeyring } from './keyring.ts'
import { Keys } from './keys.ts'
import { Projects } from './projects.ts'
import { resealAll, type Vault } from './reseal.ts'

const clock = new FakeClock()

/** What a process with these secrets makes of the store. */
function vault(store: Store, secrets: string | undefined): Vault {
  const keyring = new Keyring(secrets, systemRandom)
  const parts = { records: store.records, bus: store.bus, clock, random: systemRandom, keyring }
  return { records: store.records, keyring, projects: new Projects(parts), keys: new Keys(parts) }
}

/** Makes a project with so many keys. */
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
  it('is changed while processes serve: both open, the new one seals, and then the old one is not needed', async () => {
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

  it('given to a store without one seals what lay open', async () => {
    const store = memoryStore({ clock })
    const projectId = await makeProject(vault(store, undefined), 2)
    const sealed = vault(store, 'a secret')
    await sealed.keyring.check(store.records)
    expect(await resealAll(sealed, () => {})).toEqual({ records: 3, resealed: 3 })
    await expect(openAll(vault(store, undefined), projectId)).rejects.toThrow('no KEYRING_SECRET')
    expect(await openAll(sealed, projectId)).toBe(3)
  })

  it('is sealed under again and again without a change', async () => {
    const store = memoryStore({ clock })
    const one = vault(store, 'one,other')
    await makeProject(one, 1)
    expect(await resealAll(one, () => {})).toEqual({ records: 2, resealed: 0 })
  })

  it('that opens nothing is told so, and changes nothing', async () => {
    const store = memoryStore({ clock })
    const right = vault(store, 'right')
    const projectId = await makeProject(right, 1)
    const failed = resealAll(vault(store, 'wrong,also wrong'), () => {})
    await expect(failed).rejects.toThrow(WrongKeyring)
    await expect(failed).rejects.toThrow(`${projectId}: The private key was sealed with another wrapping key`)
    expect(await openAll(right, projectId)).toBe(2)
  })

  it('keeps what is changed while it is sealed again', async () => {
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
