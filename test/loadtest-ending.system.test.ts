import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { loadRooms } from '../dataplane/rooms/loader.ts'
import type { RunResult } from '../loadtest/result.ts'
import { startLoad } from './support/load-run.ts'
import { type Program, startCommand, startScript } from './support/program.ts'
import { newFolder, processTree, stillThere } from './support/run-folder.ts'
import { startService, type TestService } from './support/service.ts'

/** How a load test ends before its time, and what becomes of its report when something is in the way of that. */

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const SCRIPT = join(ROOT, 'loadtest/run.ts')
const WITHIN = { timeout: 60_000, interval: 50 }
const FEW = ['--rooms', '1', '--members', '4', '--threads', '1']
const PLAYING = /phase play|^play /m

/** Where the commands keep what is temporary. */
let temporary = ''
let base = ''
let out = ''
const started: Program[] = []
beforeAll(async () => {
  temporary = await newFolder()
  // What was compiled before need not be compiled again.
  const compiled = `tsx-${process.getuid?.()}`
  await mkdir(join(tmpdir(), compiled), { recursive: true })
  await symlink(join(tmpdir(), compiled), join(temporary, compiled))
})
beforeEach(async () => {
  base = await newFolder()
  out = join(base, 'out')
})
afterEach(() => {
  for (const { child } of started.splice(0)) child.kill('SIGKILL')
})

/** The command, as it is typed. */
function load(words: readonly string[], env: Record<string, string> = {}): Program {
  const program = startScript(SCRIPT, [...words, '--out', out], { TMPDIR: temporary, ...env })
  started.push(program)
  return program
}

const clusterFolders = async () =>
  (await readdir(temporary)).filter((name) => name.startsWith('roomful-cluster'))
const report = async (): Promise<RunResult> => JSON.parse(await readFile(join(out, 'report.json'), 'utf8'))
const gone = (pids: readonly number[]) => vi.waitFor(() => expect(stillThere(pids)).toEqual([]), WITHIN)

/** `npm run loadtest` in a terminal of its own. */
function typed(words: readonly string[]): Program {
  const command = ['npm', 'run', 'loadtest', '--', ...words, '--out', out].join(' ')
  const program = startCommand('script', ['-qefc', `cd ${ROOT} && exec ${command}`, '/dev/null'], {
    TMPDIR: temporary,
    TERM: 'xterm',
    NO_COLOR: '1',
  })
  started.push(program)
  return program
}
const inTerminal = it.skipIf(!existsSync('/usr/bin/script'))
const CTRL_C = '\x03'
/** `h`: it is to be seen, `l`: it is not. */
const cursor = (program: Program): string | undefined => program.output().split('\x1b[?25').at(-1)?.[0]

describe('with a service of its own', () => {
  const steady = ['steady', '--local', '1', ...FEW, '--seconds', '50']

  it('told to end, it ends everything in order, and leaves a report that says so', async () => {
    const program = load(steady)
    await program.said(PLAYING)
    const all = processTree(program.child.pid!)
    expect(all.length).toBeGreaterThan(4)
    program.child.kill('SIGTERM')
    expect(await program.ended, program.output()).toBe(143)
    expect(program.output()).toMatch(
      /^INTERRUPTED {2}steady\. It was interrupted after 0:\d\d of about 0:51/m,
    )
    const { interrupted, passed, seconds, planned_seconds: plannedSeconds, totals } = await report()
    expect({ interrupted, passed }).toEqual({ interrupted: true, passed: false })
    expect(seconds).toBeLessThan(plannedSeconds)
    expect(totals.acks).toBe(totals.sends)
    expect(await readFile(join(out, 'junit.xml'), 'utf8')).toMatch(
      /<error message="interrupted after 0:\d\d of/,
    )
    await gone(all)
    expect(await clusterFolders()).toEqual([])
  })

  inTerminal(
    'Ctrl-C twice ends it at once, also where a process does not answer, and says what it has left out',
    async () => {
      const program = typed(steady)
      await program.said(PLAYING)
      expect(cursor(program)).toBe('l')
      const all = processTree(program.child.pid!)
      // Nothing is acked any more, and it does not end when it is told to.
      for (const pid of all) if (isNode(pid)) process.kill(pid, 'SIGSTOP')
      // So soon after the first one it takes the second for the same.
      const again = setInterval(() => program.child.stdin!.write(CTRL_C), 100)
      await program.ended.finally(() => clearInterval(again))
      expect(program.output()).toContain(
        'Ended at once. Left out: waiting for what was sent, the checks, the reports, ending the service in order.',
      )
      expect(cursor(program)).toBe('h')
      await gone(all)
      expect(await readdir(out)).toEqual([])
      const [, logs] = /The logs of the service are in (\S+)/.exec(program.output())!
      await rm(logs!, { recursive: true })
    },
  )

  it('told to end while the service starts, it lets that be, and leaves a report', async () => {
    const program = load(steady)
    await program.said(/Starting a service/)
    await vi.waitFor(() => expect(processTree(program.child.pid!).length).toBeGreaterThan(3), WITHIN)
    const all = processTree(program.child.pid!)
    program.child.kill('SIGINT')
    expect(await program.ended, program.output()).toBe(130)
    expect(await report()).toMatchObject({ interrupted: true, passed: false, seconds: 0 })
    await gone(all)
    expect(await clusterFolders()).toEqual([])
  })
})

const isNode = (pid: number): boolean =>
  spawnSync('ps', ['-o', 'args=', '-p', String(pid)], { encoding: 'utf8' }).stdout.includes('dataplane')

describe('against a service that runs', () => {
  let service: TestService
  let there: string[]
  beforeAll(async () => {
    service = await startService({ rooms: await loadRooms(join(ROOT, 'loadtest/rooms')) })
    there = ['--control', service.controlUrl, '--ws', service.wsUrl]
  })
  afterAll(() => service.close())
  const steady = (seconds: number): string[] => ['steady', ...FEW, '--seconds', String(seconds), ...there]

  it('goes on for its reports when no one reads what it says', async () => {
    const program = load(steady(1))
    await program.said(/phase connect/)
    program.child.stdout!.destroy()
    program.child.stderr!.destroy()
    expect(await program.ended).toBe(0)
    expect((await report()).passed).toBe(true)
  })

  inTerminal(
    'ends in order at Ctrl-C, which a terminal and npm both pass on, and gives the cursor back',
    async () => {
      const program = typed(steady(50))
      await program.said(PLAYING)
      expect(cursor(program)).toBe('l')
      program.child.stdin!.write(CTRL_C)
      expect(await program.ended, program.output()).toBe(130)
      expect(program.output()).toContain('ending, with a report; once more ends it at once')
      expect(program.output()).not.toContain('Ended at once')
      expect(cursor(program)).toBe('h')
      expect((await report()).interrupted).toBe(true)
    },
  )

  it('keeps its reports elsewhere when in the end they cannot be written where they belong', async () => {
    const program = load(steady(1))
    await program.said(PLAYING)
    await rename(out, join(base, 'moved'))
    await writeFile(out, 'something else')
    expect(await program.ended, program.output()).toBe(3)
    expect(program.output()).toMatch(/^PASSED {2}steady/m)
    expect(program.output()).toContain(`${out} is no folder`)
    const [, elsewhere] = /All reports are in (\S+) instead/.exec(program.output())!
    const result: RunResult = JSON.parse(await readFile(join(elsewhere!, 'report.json'), 'utf8'))
    expect(result.passed).toBe(true)
  })

  describe.skipIf(!mayMount())('on a disk of its own', () => {
    /** The command, where its folder is a disk of so many KB that no other process sees. */
    const onDisk = (kilobytes: number, before: string, words: string[]): Program => {
      const mount = `mount -t tmpfs -o size=${kilobytes}k none "${base}" && cd "${ROOT}" && ${before}`
      const command = [process.execPath, '--import', 'tsx', SCRIPT, ...words, '--out', out]
      const program = startCommand('unshare', ['-rm', 'sh', '-c', `${mount} exec "$@"`, 'sh', ...command])
      started.push(program)
      return program
    }

    it('refuses to begin without the room its reports will need', async () => {
      const program = onDisk(300, '', steady(30))
      expect(await program.ended, program.output()).toBe(2)
      expect(program.output()).toMatch(
        /^Reports cannot be written into .*: there is no room for them, which is some 6\d\d KB \(ENOSPC.*\)\. --out/m,
      )
    })

    it('has the room it was promised, though the disk has been filled up since', async () => {
      const fill = `(n=0; until [ -e "${out}/.loadtest-running" ]; do n=$((n + 1)); [ $n -lt 600 ] || exit; sleep 0.1; done; sleep 0.5; cat /dev/zero > "${base}/rest"; df "${base}" | tail -1; echo full) & `
      const program = onDisk(1500, fill, steady(1.5))
      await program.said(/full/)
      expect(program.output()).toMatch(/ 100% /)
      expect(await program.ended, program.output()).toBe(0)
      expect(program.output()).toContain(join(out, 'report.html'))
    })
  })
})

/** Whether a disk can be had that only one process sees. */
function mayMount(): boolean {
  const { status, stderr } = spawnSync('unshare', ['-rm', 'mount', '-t', 'tmpfs', 'none', tmpdir()], {
    encoding: 'utf8',
  })
  if (status !== 0)
    process.stderr.write(
      `skipped: no disk of its own can be mounted here (${stderr?.trim() || 'no unshare'})\n`,
    )
  return status === 0
}

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
