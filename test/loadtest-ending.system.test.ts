import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { loadRooms } from '../dataplane/room/loader.ts'
import type { RunResult } from '../loadtest/result.ts'
import { startService, type TestService } from './support/cluster.ts'
import { FAULTS, faultyFront } from './support/faulty-front.ts'
import { type Program, startCommand, startScript } from './support/program.ts'
import { newFolder, processTree, stillThere } from './support/run-folder.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const SCRIPT = join(ROOT, 'loadtest/run.ts')
const WITHIN = { timeout: 180_000, interval: 50 }
const FEW = ['--rooms', '1', '--members', '4', '--threads', '1']
const PLAYING = /phase play|play +[━─]/
const CTRL_C = '\x03'

const started: Program[] = []
afterAll(() => {
  for (const { child } of started) child.kill('SIGKILL')
})

/** One run of the command, with its own folders for reports and for temporary files. */
async function load(words: readonly string[], { terminal = false, out = '' } = {}) {
  const base = await newFolder()
  out ||= join(base, 'out')
  const temporary = join(base, 'tmp')
  // Shares the compiled code of earlier runs.
  const compiled = `tsx-${process.getuid?.()}`
  await mkdir(join(tmpdir(), compiled), { recursive: true })
  await mkdir(temporary)
  await symlink(join(tmpdir(), compiled), join(temporary, compiled))
  const env = { TMPDIR: temporary, TERM: 'xterm', NO_COLOR: '1' }
  const command = ['npm', 'run', 'loadtest', '--', ...words, '--out', out].join(' ')
  const program: Program = terminal
    ? startCommand('script', ['-qefc', `cd ${ROOT} && exec ${command}`, '/dev/null'], env)
    : startScript(SCRIPT, [...words, '--out', out], env)
  started.push(program)
  return {
    program,
    base,
    out,
    report: async (): Promise<RunResult> => JSON.parse(await readFile(join(out, 'report.json'), 'utf8')),
    clusterFolders: async () =>
      (await readdir(temporary)).filter((name) => name.startsWith('roomful-cluster')),
  }
}

const gone = (pids: readonly number[]) => vi.waitFor(() => expect(stillThere(pids)).toEqual([]), WITHIN)
const inTerminal = it.skipIf(!existsSync('/usr/bin/script'))
/** Returns the last state of the cursor. `h`: visible. `l`: hidden. */
const cursor = (program: Program): string | undefined => program.output().split('\x1b[?25').at(-1)?.[0]
const isNode = (pid: number): boolean =>
  spawnSync('ps', ['-o', 'args=', '-p', String(pid)], { encoding: 'utf8' }).stdout.includes('dataplane')

describe.concurrent('a load test that starts a service', () => {
  const steady = ['steady', '--local', '1', ...FEW, '--seconds', '50']

  it('ends all processes at SIGTERM, and writes a report of an interrupted run', async () => {
    const { program, out, report, clusterFolders } = await load(steady)
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
    'ends immediately at a second Ctrl-C, also if a process does not answer, and prints the folder of the logs',
    async () => {
      const { program, out } = await load(steady, { terminal: true })
      await program.said(PLAYING)
      expect(cursor(program)).toBe('l')
      const all = processTree(program.child.pid!)
      // A suspended node sends no acks, and does not end at SIGTERM.
      for (const pid of all) if (isNode(pid)) process.kill(pid, 'SIGSTOP')
      // The command ignores a second Ctrl-C right after the first, because npm and the terminal both pass it on.
      program.child.stdin!.on('error', () => undefined) // The command may end between two writes.
      const again = setInterval(() => program.child.stdin!.write(CTRL_C), 100)
      await program.ended.finally(() => clearInterval(again))
      expect(program.output()).toContain('Ended immediately, without the rest of the run.')
      expect(cursor(program)).toBe('h')
      await gone(all)
      expect(await readdir(out)).toEqual([])
      const [, logs] = /The logs of the service are in (\S+)/.exec(program.output())!
      await rm(logs!, { recursive: true })
    },
  )

  it('stops the start of the service at SIGINT, and writes a report', async () => {
    const { program, report, clusterFolders } = await load(steady)
    await program.said(/Starting a service/)
    await vi.waitFor(() => expect(processTree(program.child.pid!).length).toBeGreaterThan(3), WITHIN)
    const all = processTree(program.child.pid!)
    program.child.kill('SIGINT')
    expect(await program.ended, program.output()).toBe(130)
    expect(await report()).toMatchObject({ interrupted: true, passed: false, seconds: 0 })
    await gone(all)
    expect(await clusterFolders()).toEqual([])
  })

  it('reports a broken service, and no broken promise, when the store loses its data and a process ends', async () => {
    const { program, report } = await load(steady)
    await program.said(PLAYING)
    const processes = processTree(program.child.pid!).map((pid) => ({ pid, words: wordsOf(pid) }))
    const redis = processes.find(({ words }) => words[0]?.includes('redis-server'))!
    const port = /:(\d+)|--port\0(\d+)/.exec(redis.words.join('\0'))!
    const store = new Redis(Number(port[1] ?? port[2]), '127.0.0.1')
    // Control writes a mark in the first second. Its absence later shows the loss.
    await vi.waitFor(async () => expect(await store.keys('*:mark')).toHaveLength(1), WITHIN)
    await store.flushall()
    store.disconnect()
    process.kill(processes.find(({ words }) => words.includes('control'))!.pid, 'SIGKILL')
    await program.said(/control-\d has ended by itself \(SIGKILL\); \S+\.log ends with: {.*"msg":/)
    await program.said(/the store has lost what was in it/)
    program.child.kill('SIGTERM')

    expect(await program.ended).toBe(1)
    const { incidents, failures, checks } = await report()
    const texts = incidents.map(({ text }) => text)
    expect(texts, program.output()).toContain('the store has lost what was in it')
    expect(texts.find((text) => /^control-\d has ended by itself \(SIGKILL\)/.test(text))).toBeDefined()
    expect(failures.find(({ code }) => code === 'service_broken')).toMatchObject({ count: 2 })
    expect(checks.filter(({ violations = 0 }) => violations > 0)).toEqual([])
  })
})

describe.concurrent('a load test against a running service', () => {
  let service: TestService
  beforeAll(async () => {
    service = await startService({
      rooms: await loadRooms(join(ROOT, 'loadtest/rooms')),
      node: { sessionMessagesPerSecond: 100_000, newRoomsPerMinute: 0 },
    })
  })
  afterAll(() => service.close())
  const steady = (seconds: number, wsUrl = service.wsUrl): string[] => {
    const there = ['--control', service.controlUrl, '--ws', wsUrl]
    return ['steady', ...FEW, '--seconds', String(seconds), ...there]
  }

  it('passes with exit code 0, also when its output is closed', async () => {
    const { program, report } = await load(steady(1))
    await program.said(/phase connect/)
    program.child.stdout!.destroy()
    program.child.stderr!.destroy()
    expect(await program.ended).toBe(0)
    expect((await report()).passed).toBe(true)
  })

  it('fails with exit code 1 when a check finds a violation', async () => {
    const front = await faultyFront(service.wsUrl, FAULTS['skipped patch']())
    // The fault needs 110 messages, which take longer on a busy machine.
    const { program, report } = await load([...steady(6, front.wsUrl), '--rate', '40'])
    expect(await program.ended, program.output()).toBe(1)
    expect(program.output()).toContain('✗ sequence gaps: 1 violation')
    expect((await report()).passed).toBe(false)
    front.close()
  })

  inTerminal(
    'ends with a report at Ctrl-C, which a terminal and npm both pass on, and shows the cursor again',
    async () => {
      const { program, report } = await load(steady(50), { terminal: true })
      await program.said(PLAYING)
      expect(cursor(program)).toBe('l')
      program.child.stdin!.write(CTRL_C)
      expect(await program.ended, program.output()).toBe(130)
      expect(program.output()).toContain('ending, with a report; another signal ends it immediately')
      expect(program.output()).not.toContain('Ended immediately')
      expect(cursor(program)).toBe('h')
      expect((await report()).interrupted).toBe(true)
    },
  )

  it('writes its reports to another folder, with exit code 3, when it cannot write to its folder', async () => {
    const { program, base, out } = await load(steady(1))
    await program.said(PLAYING)
    await rename(out, join(base, 'moved'))
    await writeFile(out, 'something else')
    expect(await program.ended, program.output()).toBe(3)
    expect(program.output()).toMatch(/^PASSED {2}steady/m)
    expect(program.output()).toContain(`report.json could not be written into ${out}: ENOTDIR`)
    const [, elsewhere] = /All reports are in (\S+) instead/.exec(program.output())!
    const result: RunResult = JSON.parse(await readFile(join(elsewhere!, 'report.json'), 'utf8'))
    expect(result.passed).toBe(true)
  })

  it('does not start, with exit code 2, if it cannot write reports', async () => {
    const { program } = await load(steady(1), { out: '/dev/null/reports' })
    expect(await program.ended).toBe(2)
    expect(program.output()).toMatch(/^Reports cannot be written into \/dev\/null\/reports: ENOTDIR/m)
  })
})

/** Returns the command line of a process. Empty: the process has ended. */
function wordsOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  } catch {
    return []
  }
}
