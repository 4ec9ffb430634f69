import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { connectionsWithin, openFileLimit } from './file-limit.ts'

describe('the limit of open files', () => {
  it('is the soft one that the system tells; there is none where it tells nothing', () => {
    const folder = mkdtempSync(join(tmpdir(), 'roomful-limits-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const limitIn = (text: string) => {
      writeFileSync(join(folder, 'limits'), text)
      return openFileLimit(join(folder, 'limits'))
    }
    const line =
      'Max processes   1   1   processes\nMax open files            1024                 4096                 files\n'
    expect(limitIn(line)).toBe(1024)
    expect(limitIn('Max open files   unlimited   unlimited   files\n')).toBeUndefined()
    expect(openFileLimit(join(folder, 'none'))).toBeUndefined()
  })

  it('is warned of when it is below what MAX_SESSIONS needs, and bounds the connections', () => {
    const warned: object[] = []
    const log = { warn: (fields: object, text: string) => void warned.push({ ...fields, text }) }
    expect(connectionsWithin(4300, 2000, log)).toBe(4000)
    expect(connectionsWithin(undefined, 2000, log)).toBeUndefined()
    expect(connectionsWithin(1024, 0, log)).toBe(724)
    expect(warned).toEqual([])
    expect(connectionsWithin(1024, 2000, log)).toBe(724)
    expect(warned).toEqual([
      { open_files: 1024, needed: 4300, max_sessions: 2000, text: 'ulimit -n is too low for MAX_SESSIONS' },
    ])
  })
})
