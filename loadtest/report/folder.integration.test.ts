import { spawnSync } from 'node:child_process'
import { mkdir, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { startEvaluated } from '../../test/support/program.ts'
import { newFolder } from '../../test/support/run-folder.ts'
import { ReportFolder } from './folder.ts'

const BYTES = 10_000

let base = ''
beforeEach(async () => {
  base = await newFolder()
})

const claim = (...path: string[]) => ReportFolder.claim(join(base, ...path), BYTES)
const claimFile = (): string => join(base, '.loadtest-running')
/** The number of a process that has ended. */
const gone = (): number => spawnSync(process.execPath, ['-e', '']).pid

describe('the folder of a report', () => {
  it('is made, and has the room the reports will need until they are written', async () => {
    const folder = await claim('of', 'today')
    const file = join(base, 'of', 'today', '.loadtest-running')
    expect((await stat(file)).size).toBeGreaterThan(BYTES)
    await folder.freeReserve()
    expect((await stat(file)).size).toBeLessThan(200)
    folder.release()
    expect(await readdir(join(base, 'of', 'today'))).toEqual([])
  })

  it('has no report of an earlier run once one has begun, and whatever else is in it', async () => {
    for (const name of ['report.json', 'junit.xml', 'report.html', 'notes.txt'])
      await writeFile(join(base, name), '')
    const folder = await claim()
    folder.release()
    expect(await readdir(base)).toEqual(['notes.txt'])
  })

  it('belongs to one run at a time, and to the next one after that', async () => {
    // A process that certainly goes on, and is not this one.
    await writeFile(claimFile(), `${JSON.stringify({ pid: process.ppid, host: hostname() })}\n`)
    await writeFile(join(base, 'report.json'), 'of the first')
    await expect(claim()).rejects.toThrow(
      `another load test (process ${process.ppid} on ${hostname()}) is running and will write its own there; if there is none, remove ${claimFile()}. --out names another folder.`,
    )
    expect(await readFile(join(base, 'report.json'), 'utf8')).toBe('of the first')
    await rm(claimFile())
    const folder = await claim()
    folder.release()
  })

  it('is free again when the run that had it has ended without a word', async () => {
    for (const pid of [gone(), process.pid]) {
      await writeFile(claimFile(), `${JSON.stringify({ pid, host: hostname() })}\n\n\n`)
      const folder = await claim()
      folder.release()
      expect(await readdir(base)).toEqual([])
    }
  })

  it('is not taken from a run on another machine, or one of which nothing is known', async () => {
    for (const text of [JSON.stringify({ pid: gone(), host: 'elsewhere' }), '']) {
      await writeFile(claimFile(), text)
      await expect(claim()).rejects.toThrow(/another load test.* is running/)
    }
  })

  it('is refused where the claim of a dead run can neither be read nor taken away', async () => {
    await mkdir(claimFile())
    await expect(claim()).rejects.toThrow(/^Reports cannot be written into .*EISDIR.* --out names another/)
    await rm(claimFile(), { recursive: true })
    await writeFile(claimFile(), `${JSON.stringify({ pid: gone(), host: hostname() })}\n`)
    await mkdir(`${claimFile()}-${process.pid}`)
    await expect(claim()).rejects.toThrow(/^Reports cannot be written into .*EISDIR.* --out names another/)
  })

  it('is taken by one of two that begin at once, also where a dead run has left its claim', async () => {
    const program = `
      import { ReportFolder } from ${JSON.stringify(join(import.meta.dirname, 'folder.ts'))}
      const folder = await ReportFolder.claim(process.argv[1], 10).catch((error) => console.log('refused: ' + error.message))
      if (folder) console.log('claimed')
      process.stdin.resume()`
    await writeFile(claimFile(), `${JSON.stringify({ pid: gone(), host: hostname() })}\n`)
    const all = Array.from({ length: 2 }, () => startEvaluated(program, [base]))
    const said = await Promise.all(all.map(async ({ said }) => (await said(/claimed|refused/))[0]))
    expect(said.toSorted()).toEqual(['claimed', 'refused'])
    for (const { child } of all) child.kill('SIGKILL')
  })

  it('says what stands in the way', async () => {
    await writeFile(join(base, 'file'), '')
    await symlink(join(base, 'nowhere'), join(base, 'link'))
    await mkdir(join(base, 'taken', 'report.json'), { recursive: true })
    await expect(claim('file')).rejects.toThrow(
      `Reports cannot be written into ${join(base, 'file')}: ${join(base, 'file')} is no folder. --out names another folder.`,
    )
    await expect(claim('file', 'below', 'it')).rejects.toThrow(`${join(base, 'file')} is no folder`)
    await expect(claim('link', 'below')).rejects.toThrow('EEXIST')
    await expect(claim('taken')).rejects.toThrow(
      /^The report of an earlier run in .*taken cannot be replaced/,
    )
    expect(await readdir(join(base, 'taken'))).toEqual(['report.json'])
  })

  it.skipIf(process.platform !== 'linux')('says so at once where no folder can be made', async () => {
    await expect(ReportFolder.claim('/proc/of/today', BYTES)).rejects.toThrow(
      /^Reports cannot be written into \/proc\/of\/today: ENOENT.*'\/proc\/of'\. --out names another folder\.$/,
    )
  })
})
