import { describe, expect, inject, it, onTestFinished, vi } from 'vitest'
import { startTyped } from '../../test/support/program.ts'
import { freePort } from '../../test/support/redis-server.ts'
import { roomfulProgram } from '../local/machine.ts'

/** Time limit for the start of several processes on a busy machine. */
const STARTS_WITHIN_MS = 120_000
const REDIRECTIONS = [
  ['a full disk', '> /dev/full', 'ENOSPC'],
  ['a pipe whose reader has gone', '| true', 'EPIPE'],
] as const

const DROPPED = /^service_log_lines_dropped_total\S* (\d+)$/gm
/** Number of dropped lines, by process. */
const dropped = async (url: string): Promise<number[]> => {
  const text = await (await fetch(`${url}/metrics`)).text()
  return [...text.matchAll(DROPPED)].map(([, count]) => Number(count))
}

/** Starts a command of `roomful` with a redirected stdout. Its output is read from stderr. */
function start(words: string, redirection: string, env: Record<string, string>) {
  const command = [process.execPath, ...roomfulProgram().words].map((word) => `'${word}'`).join(' ')
  const program = startTyped(`${command} ${words} ${redirection}`, process.cwd(), {
    REDIS_URL: inject('redisUrl'),
    KEY_PREFIX: `lost-log-${process.pid}:`,
    INTERNAL_TOKEN: 'internal-token-of-the-lost-log-tests',
    LOG_LEVEL: 'debug',
    ...env,
  })
  onTestFinished(program.end)
  return program
}

describe.each(REDIRECTIONS)('stdout of %s', (_name, redirection, code) => {
  it('does not end control, which answers, counts the dropped lines, and reports them on stderr', async () => {
    const port = await freePort()
    const program = start('control', redirection, { CONTROL_PORT: String(port) })
    const url = `http://127.0.0.1:${port}`
    const [before = 0] = await vi.waitFor(() => dropped(url), STARTS_WITHIN_MS)
    for (let n = 0; n < 20; n++) expect((await fetch(`${url}/healthz`)).status).toBe(200)
    const [after = 0] = await dropped(url)
    expect(before).toBeGreaterThan(0)
    expect(after - before).toBeGreaterThanOrEqual(20)
    const said = program.output().match(/^roomful .*$/gm)
    expect(said).toEqual([
      expect.stringMatching(new RegExp(`the log cannot be written: .*${code}.*are dropped`)),
    ])
  })

  it('does not end a process with workers, nor its workers', async () => {
    const port = await freePort()
    const env = { CONTROL_PORT: String(port), WORKERS: '2' }
    const program = start('control', redirection, env)
    const url = `http://127.0.0.1:${port}`
    await vi.waitFor(async () => {
      const counts = await dropped(url)
      expect(counts.filter((count) => count > 0).length).toBe(3)
    }, STARTS_WITHIN_MS)
    for (let n = 0; n < 20; n++) expect((await fetch(`${url}/healthz`)).status).toBe(200)
    expect(program.child.exitCode).toBe(null)
  })

  it('does not end roomful dev, whose two planes count dropped lines', async () => {
    const port = await freePort()
    const env = { ADMIN_PORT: String(port), WS_PORT: '0', CONTROL_PORT: '0', EXAMPLES_PORT: '0' }
    const program = start('dev', redirection, env)
    const [, games] = await program.said(/play\s+(http:\S+)/)
    const [, api] = await program.said(/control API\s+(http:\S+)\/docs/)
    for (let n = 0; n < 20; n++) expect((await fetch(games!)).status).toBe(200)
    for (const url of [api!, `http://127.0.0.1:${port}`])
      expect((await dropped(url))[0], url).toBeGreaterThan(0)
    expect(program.output()).toContain('the log cannot be written')
  })
})

describe('stdout of a pipe without a reader', () => {
  it('uses a bounded amount of memory, and the process continues', async () => {
    const script = `
      import { createLog, droppedLines } from './shared/log.ts'
      const log = createLog({ logLevel: 'info' })
      for (let n = 0; n < 640; n++) {
        log.info({ text: 'x'.repeat(100_000) }, 'line')
        await new Promise(setImmediate)
      }
      console.error('waiting', process.stdout.writableLength, 'dropped', droppedLines(log))
    `
    const node = `'${process.execPath}' --import tsx --input-type=module -e "$SCRIPT"`
    const program = startTyped(`${node} | tail -f /dev/null`, process.cwd(), { SCRIPT: script })
    onTestFinished(program.end)
    const [, waiting, dropped] = await program.said(/waiting (\d+) dropped (\d+)/)
    expect(Number(waiting)).toBeLessThanOrEqual(4 * 1024 * 1024)
    expect(Number(dropped)).toBeGreaterThan(590)
  })
})
