import type { Records } from '../shared/store/port.ts'
import { type Keyring, type StoredPair, WrongKeyring } from './keyring.ts'
import { type Keys, keyKey } from './keys.ts'
import { type Projects, projectKey } from './projects.ts'

/** How many records with a private key there are, and how many of them were sealed again. */
export interface Resealed {
  readonly records: number
  readonly resealed: number
}

/** What holds the private keys of a deployment. */
export interface Vault {
  readonly records: Records
  readonly keyring: Keyring
  readonly projects: Projects
  readonly keys: Keys
}

const PAGE = 200

/**
 * Seals every private key of the store under the keyring's first secret, and notes that in the store, so that the others can be taken out of
 * `KEYRING_SECRET`. May run while control processes serve, and again after it was interrupted; what was made meanwhile is found by going on until
 * a round has nothing to do. Rejects with a `WrongKeyring` that
 * names the record when a key opens under none of the secrets. `progress` hears of each project.
 */
export async function resealAll(vault: Vault, progress: (sofar: Resealed) => void): Promise<Resealed> {
  let sofar = { records: 0, resealed: 0 }
  for (;;) {
    const round = await resealOnce(vault, ({ records, resealed }) =>
      progress({ records, resealed: sofar.resealed + resealed }),
    )
    sofar = { records: round.records, resealed: sofar.resealed + round.resealed }
    if (round.resealed === 0) break
  }
  await vault.keyring.mark(vault.records)
  return sofar
}

async function resealOnce(vault: Vault, progress: (sofar: Resealed) => void): Promise<Resealed> {
  const sofar = { records: 0, resealed: 0 }
  const add = async (storeKeys: readonly string[]): Promise<void> => {
    for (const storeKey of storeKeys) {
      sofar.records += 1
      if (await resealRecord(vault, storeKey)) sofar.resealed += 1
    }
  }
  await eachPage(async (before) => {
    const { projects, next } = await vault.projects.page({ limit: PAGE, before })
    for (const { id } of projects) {
      await add([projectKey(id)])
      await eachPage(async (beforeKey) => {
        const { keys, next: nextKey } = await vault.keys.page(id, { limit: PAGE, before: beforeKey })
        await add(keys.map((key) => keyKey(key.id)))
        return nextKey
      })
      progress(sofar)
    }
    return next
  })
  return sofar
}

/** Calls `visit` for the first page, and then with each `next` that it resolves with. */
async function eachPage(visit: (before: string | undefined) => Promise<string | undefined>): Promise<void> {
  let before: string | undefined
  do before = await visit(before)
  while (before !== undefined)
}

/** Whether the record's key had to be sealed again. */
async function resealRecord({ records, keyring }: Vault, storeKey: string): Promise<boolean> {
  for (;;) {
    const [record] = await records.read([storeKey])
    if (!record) return false
    const value: { pair: StoredPair } = JSON.parse(new TextDecoder().decode(record.value))
    const pair = await resealPair(keyring, value.pair, storeKey)
    if (!pair) return false
    const resealed = new TextEncoder().encode(JSON.stringify({ ...value, pair }))
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
