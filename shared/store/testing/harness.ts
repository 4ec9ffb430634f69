import { onTestFinished } from 'vitest'
import type { Store } from '../port.ts'

/** One store, opened for one case, in which nothing is stored yet. */
export interface StoreUnderTest {
  readonly store: Store
  /** Lets the lifetime `ttlMs` pass, as this store measures it, and resolves once `seen` says that its end shows. */
  elapse(ttlMs: number, seen: () => Promise<boolean>): Promise<void>
}

export type OpenStore = () => Promise<StoreUnderTest>

/** A lifetime short enough to wait for, milliseconds. */
export const SHORT_MS = 40
/** A lifetime no case outlasts, milliseconds. */
export const LONG_MS = 600_000

/** Opens a store that is closed when the case ends. */
export async function opened(open: OpenStore): Promise<StoreUnderTest> {
  const underTest = await open()
  onTestFinished(() => underTest.store.close())
  return underTest
}

export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
export const text = (value: Uint8Array | undefined): string | undefined =>
  value && new TextDecoder().decode(value)

/** Every value a byte can have, in order. */
export const everyByte = (): Uint8Array => Uint8Array.from({ length: 256 }, (_, value) => value)
