import { execFileSync } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'

const PREFIX = 'roomful-tests-'

/** Folder of one test run. */
interface RunFolder {
  /** Value of TMPDIR. All temporary files go below it, and it identifies the processes of the run. */
  readonly path: string
  /** Ends all processes of the run except the test runner's, and removes the folder. Returns the commands of the ended processes. */
  close(): Promise<string[]>
}

/**
 * Creates the folder of a run below `temporary`, and removes the folders of runs that were killed. A test that fails, or whose worker is
 * killed, cannot remove its files itself. If `temporary` is the folder of another tier of this run, the new folder is beside it: the path of
 * a socket has at most 107 bytes.
 */
export async function openRunFolder(temporary = tmpdir()): Promise<RunFolder> {
  const base = basename(temporary).startsWith(`${PREFIX}${process.pid}-`) ? dirname(temporary) : temporary
  const earlier = (await readdir(base)).filter((name) => name.startsWith(PREFIX))
  for (const name of earlier)
    if (stillThere([Number(name.slice(PREFIX.length).split('-')[0])]).length === 0)
      await clear(join(base, name))
  const path = await mkdtemp(join(base, `${PREFIX}${process.pid}-`))
  return { path, close: () => clear(path) }
}

/**
 * Environment of a process that a test starts: the paths of programs and temporary files, and the compiled code that processes of the run
 * share. No other variable of the machine may change a test.
 */
export const runEnvironment = (): NodeJS.ProcessEnv => {
  const { PATH, HOME, TMPDIR, NODE_COMPILE_CACHE } = process.env
  return { PATH, HOME, TMPDIR, NODE_COMPILE_CACHE }
}

/** Creates a folder for files of a test. The end of the run removes it. */
export const newFolder = (): Promise<string> => mkdtemp(join(tmpdir(), 'files-'))

async function clear(folder: string): Promise<string[]> {
  const commands: string[] = []
  for (const { pid, command } of await processesOf(folder)) {
    commands.push(command)
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // The process has ended.
    }
  }
  await rm(folder, { recursive: true, force: true, maxRetries: 5 })
  return commands
}

/** Returns the processes with this TMPDIR, without the children of this process: those are workers of the test runner. Empty without /proc. */
async function processesOf(folder: string): Promise<{ pid: number; command: string }[]> {
  const pids = (await readdir('/proc').catch((): string[] => [])).filter((name) => /^\d+$/.test(name))
  const found = await Promise.all(
    pids.map(async (pid) => {
      const read = (file: string) => readFile(`/proc/${pid}/${file}`, 'utf8').catch(() => '')
      const [environment, status, command] = await Promise.all([
        read('environ'),
        read('status'),
        read('cmdline'),
      ])
      const own = Number(/^PPid:\s*(\d+)/m.exec(status)?.[1]) === process.pid
      if (own || !environment.split('\0').includes(`TMPDIR=${folder}`)) return []
      return [{ pid: Number(pid), command: command.replaceAll('\0', ' ').trim() }]
    }),
  )
  return found.flat()
}

/** Returns all processes of this machine, without zombies. */
const processes = (): { readonly pid: number; readonly parent: number }[] =>
  execFileSync('ps', ['-eo', 'pid=,ppid=,stat='], { encoding: 'utf8' })
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , state]) => !state!.startsWith('Z'))
    .map(([pid, parent]) => ({ pid: Number(pid), parent: Number(parent) }))

/** Returns `root` and its descendants. */
export function processTree(root: number): number[] {
  const all = processes()
  const below = (of: number): number[] => [
    of,
    ...all.filter(({ parent }) => parent === of).flatMap(({ pid }) => below(pid)),
  ]
  return below(root)
}

/** Returns the processes that still exist. */
export function stillThere(pids: readonly number[]): number[] {
  const all = new Set(processes().map(({ pid }) => pid))
  return pids.filter((pid) => all.has(pid))
}
