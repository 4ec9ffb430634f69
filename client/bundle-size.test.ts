import { expect, test } from 'vitest'
import { bundleSize } from './bundle-size.ts'

test('the SDK bundles for browsers and is smaller than 20 KiB, minified and gzipped', async () => {
  const { gzip, min } = await bundleSize()
  expect(gzip).toBeLessThan(20 * 1024)
  expect(min).toBeGreaterThan(gzip)
})
