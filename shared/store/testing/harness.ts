import { it, onTestFinished } from 'vitest'
import type { Store } from '../port.ts'

/** One empty store, opened for one case. */
export interface StoreUnderTest {
  readonly store: Store
  /** Lets the lifetime `ttlMs` pass by this store's clock. Resolves when `seen` shows its end. */
  elapse(ttlMs: number, seen: () => Promise<boolean>): Promise<void>
}

export type OpenStore = () => Promise<StoreUnderTest>

/** Shortest and longest lifetimes that a case waits for, in milliseconds. */
const SHORTEST_MS = 40
const LONGEST_SHORT_MS = SHORTEST_MS * 4 ** 3
/** A lifetime longer than any case, in milliseconds. */
export const LONG_MS = 600_000

/** Opens a store that is closed when the case ends. */
export async function opened(open: OpenStore): Promise<StoreUnderTest> {
  const underTest = await open()
  onTestFinished(() => underTest.store.close())
  return underTest
}

/**
 * Defines a case in which lifetimes of `shortMs` end. In Redis they are real. On a busy machine, such a lifetime can end while the case
 * still needs it. If the case fails after it has worked for longer than `shortMs`, not counting `elapse`, it runs again in a new store with
 * lifetimes four times as long.
 */
export function itExpires(
  open: OpenStore,
  name: string,
  body: (underTest: StoreUnderTest, shortMs: number) => Promise<void>,
): void {
  it(name, async () => {
    for (let shortMs = SHORTEST_MS; ; shortMs *= 4) {
      const { store, elapse } = await opened(open)
      const startMs = performance.now()
      let elapsedMs = 0
      const timed: StoreUnderTest['elapse'] = async (ttlMs, seen) => {
        const fromMs = performance.now()
        await elapse(ttlMs, seen).finally(() => {
          elapsedMs += performance.now() - fromMs
        })
      }
      try {
        return await body({ store, elapse: timed }, shortMs)
      } catch (error) {
        const workedMs = performance.now() - startMs - elapsedMs
        if (workedMs < shortMs || shortMs >= LONGEST_SHORT_MS) throw error
      }
    }
  })
}

export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
export const text = (value: Uint8Array | undefined): string | undefined =>
  value && new TextDecoder().decode(value)

/** All byte values, in order. */
export const everyByte = (): Uint8Array => Uint8Array.from({ length: 256 }, (_, value) => value)
