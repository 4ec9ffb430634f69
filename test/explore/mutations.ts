import { type RoomRecords, type Store, StoreUnavailable } from '../../shared/store/port.ts'
import type { Mutation } from './model-node.ts'

/** Puts some operations of rooms in the place of others. */
const rooms =
  (change: (rooms: RoomRecords) => Partial<RoomRecords>) =>
  (store: Store): Store => ({ ...store, rooms: { ...store.rooms, ...change(store.rooms) } })

/** Ways to build ownership wrong, each of which has to be found. They live here only, around the real parts. */
export const MUTATIONS = {
  /** Commits that no fence refuses: they are made under whatever fence the record has now. */
  unfenced: {
    store: rooms((inner) => ({
      commit: async (room, fence, entry, ttlMs) => {
        const now = await inner.inspect(room)
        return inner.commit(room, now ?? fence, entry, ttlMs)
      },
    })),
  },
  /** A node that never asks whether its lease still stands. */
  trusting: { mayAct: () => true },
  /** A record that repeats a write whose answer was lost, on top of whatever stands by now. */
  repeating: {
    store: rooms((inner) => ({
      commit: async (room, fence, entry, ttlMs) => {
        try {
          return await inner.commit(room, fence, entry, ttlMs)
        } catch (error) {
          const now = await inner.inspect(room)
          if (now?.epoch !== fence.epoch) throw error
          return inner.commit(room, now, entry, ttlMs)
        }
      },
    })),
  },
  /** A record that takes a write for done when the store is silent. */
  hopeful: {
    store: rooms((inner) => ({
      commit: async (...write) => {
        try {
          return await inner.commit(...write)
        } catch (error) {
          if (error instanceof StoreUnavailable) return true
          throw error
        }
      },
    })),
  },
  /** A claim without compare-and-set: whoever is too late takes the epoch that the other has made. */
  grabbing: {
    store: rooms((inner) => ({
      claim: async (room, owner, expectedEpoch, ttlMs) => {
        const claim = await inner.claim(room, owner, expectedEpoch, ttlMs)
        if (claim) return claim
        const { epoch, version } = (await inner.inspect(room))!
        return {
          fence: { epoch, version },
          snapshot: undefined,
          journal: [],
          over: expectedEpoch,
          stuck: [],
        }
      },
    })),
  },
} satisfies Record<string, Mutation>

/** One of them. */
export const mutation = (name: keyof typeof MUTATIONS): Mutation => MUTATIONS[name]
