import { execFileSync } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'

const PREFIX = 'roomful-tests-'

/** What a run of tests leaves on the machine. */
interface RunFolder {
  /** Everything temporary goes below it when it is in TMPDIR, which also tells the processes of the run from others. */
  readonly path: string
  /** Ends every process of the run but those of its test runner, and removes the folder. Gives the commands of those it found. */
  close(): Promise<string[]>
}

/**
 * A folder for all that the tests of one run put down, below `temporary`. A test that fails, or whose worker is killed, cannot clean up
 * behind itself: this does, also behind runs that were killed as a whole. Where another tier of this run has made its folder the one for
 * temporary files, the new one is beside it: a socket cannot be opened under a path of more than 107 bytes.
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
 * Environment of a process that a test starts: where programs and temporary files are, and the compiled code that processes of the run share.
 * Nothing else of the machine's environment may change what is tested.
 */
export const runEnvironment = (): NodeJS.ProcessEnv => {
  const { PATH, HOME, TMPDIR, NODE_COMPILE_CACHE } = process.env
  return { PATH, HOME, TMPDIR, NODE_COMPILE_CACHE }
}

/** A new folder for files of a test. It goes at the end of the run, as all that tests put into the folder for temporary files. */
export const newFolder = (): Promise<string> => mkdtemp(join(tmpdir(), 'files-'))

async function clear(folder: string): Promise<string[]> {
  const commands: string[] = []
  for (const { pid, command } of await processesOf(folder)) {
    commands.push(command)
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It has ended by itself.
    }
  }
  await rm(folder, { recursive: true, force: true, maxRetries: 5 })
  return commands
}

/** Every process whose TMPDIR this is, but for the workers of the test runner, which are its own children. None where there is no /proc. */
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

/** Every process of this machine, but for dead ones that no one has buried. */
const processes = (): { readonly pid: number; readonly parent: number }[] =>
  execFileSync('ps', ['-eo', 'pid=,ppid=,stat='], { encoding: 'utf8' })
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , state]) => !state!.startsWith('Z'))
    .map(([pid, parent]) => ({ pid: Number(pid), parent: Number(parent) }))

/** The process `root` and all below it, as they are now. */
export function processTree(root: number): number[] {
  const all = processes()
  const below = (of: number): number[] => [
    of,
    ...all.filter(({ parent }) => parent === of).flatMap(({ pid }) => below(pid)),
  ]
  return below(root)
}

/** Those of the processes that are still there. */
export function stillThere(pids: readonly number[]): number[] {
  const all = new Set(processes().map(({ pid }) => pid))
  return pids.filter((pid) => all.has(pid))
}
