import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { copyAssets } from './assets.ts'

it('the package has what its code reads, and nothing that only sources need', async () => {
  const target = await mkdtemp(join(tmpdir(), 'roomful-assets-'))
  onTestFinished(() => rm(target, { recursive: true, force: true }))
  await copyAssets(join(import.meta.dirname, '../../'), target)
  const copied = await readdir(target, { recursive: true })
  expect(copied).toContain('shared/store/redis/lua/claim.lua')
  expect(copied.filter((file) => /\.ts$|\.md$|from-source/.test(file))).toEqual([])
})
