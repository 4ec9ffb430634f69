import { describe } from 'vitest'
import { describeBus } from './conformance/bus.ts'
import type { OpenStore } from './conformance/harness.ts'
import { describeLife } from './conformance/life.ts'
import { describeLocks } from './conformance/locks.ts'
import { describeRecords } from './conformance/records.ts'
import { describeRooms } from './conformance/rooms.ts'

export type { OpenStore, StoreUnderTest } from './conformance/harness.ts'

/** What every adapter of the store port must do, whatever it keeps its data in. `open` is called once for each case. */
export function describeStore(name: string, open: OpenStore): void {
  describe(name, () => {
    describeRecords(open)
    describeRooms(open)
    describeBus(open)
    describeLocks(open)
    describeLife(open)
  })
}
