import { type Keyring, type StoredPair, WrongKeyring } from './keyring.ts'
import { Keys, keyKey } from './keys.ts'
import { Projects, projectKey } from './projects.ts'
import { decode, encode, type PageRequest, type RecordsEnvironment } from './records.ts'

/** How many records with a private key there are, and how many of them were sealed again. */
export interface Resealed {
  readonly records: number
  readonly resealed: number
}

const PAGE = 200

/**
 * Seals every private key of the store under the keyring's first secret, and notes that in the store, so that the others can be taken out of
 * `KEYRING_SECRET`. May run while control processes serve, and again after it was interrupted; what was made meanwhile is found by going on until
 * a round has nothing to do. Rejects with a `WrongKeyring` that
 * names the record when a key opens under none of the secrets. `progress` hears of each project.
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

/** All items of a list that is read page by page. */
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

/** Whether the record's key had to be sealed again. */
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
