import type { Store } from '../../shared/store/port.ts'
import { MUTATIONS as IN_THE_STORE } from '../explore/scenarios.ts'

const { trusting: _, ...others } = IN_THE_STORE

/** Ways to build a node wrong, each of which a run has to find: those of the explorer, around the real parts. */
export const MUTATIONS: Readonly<Record<string, (store: Store) => Store>> = {
  ...Object.fromEntries(Object.entries(others).map(([name, { store }]) => [name, store])),
  /** A node that takes its lease for renewed whatever the store says. */
  trusting: (store) => ({
    ...store,
    records: {
      ...store.records,
      renewLease: async (renewal) => {
        store.records.renewLease(renewal).catch(() => undefined)
        return { holder: renewal.holder, since: 1 }
      },
    },
  }),
}
