import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import type { Findings } from './figure.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Runs the program to its end; gives its exit code and all it printed. */
async function figures(...args: string[]): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, ['--import', 'tsx', 'loadtest/figures.ts', ...args], { cwd: ROOT })
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString()
    })
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, output }
}

it('measures a real cluster, and writes the page and the figures', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-figures-test-'))
  try {
    const [page, json] = [join(folder, 'page.md'), join(folder, 'figures.json')]
    const { code, output } = await figures('--only', 'nothing', '--runs', '1', '--out', page, '--json', json)
    expect(code, output).toBe(0)
    expect(await readFile(page, 'utf8')).toContain('| no fault: all members | ms | 1 | 6 |')
    const { findings } = JSON.parse(await readFile(json, 'utf8')) as { findings: Findings[] }
    expect(findings[0]?.facts).toEqual([
      { what: 'sessions lost', value: 0, unit: '', at_most: 0 },
      { what: 'acked ops lost', value: 0, unit: '', at_most: 0 },
      { what: 'ops refused or without effect', value: 0, unit: '', at_most: 0 },
    ])
  } finally {
    await rm(folder, { recursive: true })
  }
})

it('names what it cannot measure, and all it can', async () => {
  const { code, output } = await figures('--only', 'kil')
  expect(code).toBe(2)
  expect(output).toContain('there is no measurement "kil"')
  expect(output).toContain('kill-snapshot')
})
