import { existsSync, readFileSync } from 'node:fs'
import { expect, it } from 'vitest'

const page = readFileSync(new URL('../docs/security.md', import.meta.url), 'utf8')
const [threats = ''] = page.split('\n## Threats, answers, tests\n')[1]!.split('\n## ')
const rows = threats.split('\n').filter((line) => line.startsWith('| ') && !line.startsWith('| threat '))

it('every threat in docs/security.md names tests that exist', () => {
  expect(rows.length).toBeGreaterThan(30)
  for (const row of rows) {
    const [, , tests = ''] = row.split(' | ')
    const paths = [...tests.matchAll(/`([\w./-]+\.test\.ts)`/g)].map(([, path]) => path!)
    expect(paths, row).not.toEqual([])
    for (const path of paths) expect(existsSync(new URL(`../${path}`, import.meta.url)), path).toBe(true)
  }
})
