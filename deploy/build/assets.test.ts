import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { newFolder } from '../../test/support/run-folder.ts'
import { copyAssets } from './assets.ts'

it('the package has what its code reads, and nothing that only sources need', async () => {
  const target = await newFolder()
  await copyAssets(join(import.meta.dirname, '../../'), target)
  const copied = await readdir(target, { recursive: true })
  expect(copied).toContain('shared/store/redis/lua/claim.lua')
  expect(copied.filter((file) => /\.ts$|\.md$|from-source/.test(file))).toEqual([])
})
