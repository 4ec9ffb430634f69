import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync } from 'node:fs'
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { openRunFolder } from './support/run-folder.ts'

/** A program that outlives its parent: its parent ends at once. Gives its process id. */
async function orphan(folder: string): Promise<number> {
  const text = `
    const child = require('node:child_process').spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore', detached: true })
    console.log(child.pid)
    process.exit()
  `
  const parent: ChildProcess = spawn(process.execPath, ['-e', text], { env: { TMPDIR: folder } })
  const [pid] = await once(parent.stdout!, 'data')
  onTestFinished(() => {
    try {
      process.kill(Number(pid), 'SIGKILL')
    } catch {
      // Gone, as it should be.
    }
  })
  return Number(pid)
}

const isThere = (pid: number): boolean => existsSync(`/proc/${pid}/exe`)
const base = () => mkdtemp(join(tmpdir(), 'roomful-base-'))

it.skipIf(!existsSync('/proc/self/environ'))('a run leaves no process and no folder behind', async () => {
  const folder = await openRunFolder(await base())
  await writeFile(join(folder.path, 'left'), 'by a test that failed')
  const pid = await orphan(folder.path)
  const another = await orphan(`${folder.path}-another`)
  expect(await folder.close()).toEqual([expect.stringContaining('setInterval')])
  await expect.poll(() => isThere(pid)).toBe(false)
  expect(isThere(another)).toBe(true)
  expect(existsSync(folder.path)).toBe(false)
})

it('a run that was killed is cleared by the next', async () => {
  const place = await base()
  const ended = spawn(process.execPath, ['-e', ''])
  await once(ended, 'exit')
  await mkdir(join(place, `roomful-tests-${ended.pid}-old`))
  await mkdir(join(place, `roomful-tests-${process.pid}-alive`))
  const { path } = await openRunFolder(place)
  expect(readdirSync(place).sort()).toEqual(
    [`roomful-tests-${process.pid}-alive`, path.slice(place.length + 1)].sort(),
  )
})
