import { readFileSync } from 'node:fs'
import { Redis } from 'ioredis'
import { expect, it } from 'vitest'
import { startLoad } from './support/load-run.ts'
import { processTree } from './support/run-folder.ts'

/** The words a process was started with; none when it is gone. */
function wordsOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  } catch {
    return []
  }
}

it('a load test whose service loses its store and a process says that, and blames no promise', {
  timeout: 120_000,
}, async () => {
  const size = ['--rooms', '1', '--members', '4', '--rate', '5', '--seconds', '6', '--threads', '1']
  const { program, outcome } = await startLoad(['steady', '--local', '1', ...size])
  await program.said(/phase play/)
  const processes = processTree(program.child.pid!).map((pid) => ({ pid, words: wordsOf(pid) }))

  const redis = processes.find(({ words }) => words[0]?.includes('redis-server'))!
  const port = /:(\d+)|--port\0(\d+)/.exec(redis.words.join('\0'))!
  const store = new Redis(Number(port[1] ?? port[2]), '127.0.0.1')
  // The mark by which the loss is seen comes with the first second.
  await expect.poll(() => store.keys('*:mark'), { timeout: 30_000 }).toHaveLength(1)
  await store.flushall()
  store.disconnect()
  process.kill(processes.find(({ words }) => words.includes('control'))!.pid, 'SIGKILL')

  const { exit_code: exitCode, output, report } = await outcome
  const { incidents, failures, checks } = report()
  const told = incidents.map(({ text }) => text)
  expect(told, output).toContain('the store has lost what was in it')
  expect(told.find((text) => /^control-\d has ended by itself \(SIGKILL\)/.test(text))).toBeDefined()
  expect(failures.find(({ code }) => code === 'service_broken')).toMatchObject({ count: 2 })
  expect(output).toMatch(/service_broken × 2/)
  expect(checks.filter(({ violations = 0 }) => violations > 0)).toEqual([])
  expect(exitCode).toBe(1)
})
