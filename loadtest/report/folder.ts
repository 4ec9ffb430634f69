import { rmSync } from 'node:fs'
import {
  type FileHandle,
  link,
  mkdir,
  open,
  readFile,
  rename,
  rm,
  stat,
  truncate,
  writeFile,
} from 'node:fs/promises'
import { hostname } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import type { RunResult } from '../result.ts'
import { bytes as sizeOf } from '../text.ts'
import { junitXml } from './junit.ts'
import { reportPage } from './page.ts'

/** What a run leaves in its folder. */
const REPORTS = ['report.json', 'junit.xml', 'report.html'] as const
type ReportName = (typeof REPORTS)[number]

/** There while a run is to write into the folder: who that is, and behind it the room its reports will need. */
const CLAIM = '.loadtest-running'
const CHUNK_BYTES = 1024 * 1024

/** Who has claimed a folder. */
interface Holder {
  readonly pid: number
  readonly host: string
}

/** The folder for the reports of one run, which has it to itself from before it begins until its reports are there. */
export class ReportFolder {
  readonly path: string

  private constructor(path: string) {
    this.path = path
  }

  /**
   * Makes the folder where it is missing, takes the reports of earlier runs away, and keeps `bytes` free for those to come: what cannot
   * be written in the end is found out before the run. Rejects with an Error that says what stands in the way, also when another run that
   * goes on has the folder.
   */
  static async claim(folder: string, bytes: number): Promise<ReportFolder> {
    const path = resolve(folder)
    try {
      await makeFolder(path)
      await reserve(join(path, CLAIM), bytes)
    } catch (error) {
      throw new Error(`Reports cannot be written into ${folder}: ${reason(error, bytes)}.${ELSEWHERE}`)
    }
    const claimed = new ReportFolder(path)
    try {
      for (const name of REPORTS) await rm(join(path, name), { force: true })
    } catch (error) {
      claimed.release()
      throw new Error(
        `The report of an earlier run in ${folder} cannot be replaced: ${(error as Error).message}.${ELSEWHERE}`,
      )
    }
    return claimed
  }

  /** Gives the space that was reserved to the reports. A folder that was removed meanwhile has none to give. */
  async freeReserve(): Promise<void> {
    await truncate(join(this.path, CLAIM), claimOf(process.pid).length).catch(() => undefined)
  }

  /** The folder is free for the next run. To be called at the end in any case; does not wait, so that it can be the last thing done. */
  release(): void {
    try {
      rmSync(join(this.path, CLAIM), { force: true })
    } catch {
      // Someone has put something else in the place of the folder.
    }
  }
}

const ELSEWHERE = ' --out names another folder.'

/**
 * Makes a folder and those above it. Not by `mkdir` with `recursive`, which never comes back from a place where no folder can be made,
 * such as /proc.
 */
async function makeFolder(path: string): Promise<void> {
  const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined
    throw error
  })
  if (found?.isDirectory()) return
  if (found) throw new Error(`${path} is no folder`)
  await makeFolder(dirname(path))
  await mkdir(path).catch(async (error: NodeJS.ErrnoException) => {
    // Another run may have made it in the meantime; a link to nowhere is none.
    const there = await stat(path).catch(() => undefined)
    if (!there?.isDirectory()) throw error
  })
}

/** Claims a folder by a file of at least so many bytes. */
async function reserve(claim: string, bytes: number): Promise<void> {
  const file = await create(claim)
  try {
    await file.appendFile(claimOf(process.pid))
    const filler = Buffer.alloc(CHUNK_BYTES, '\n')
    for (let left = bytes; left > 0; left -= CHUNK_BYTES) await file.appendFile(filler.subarray(0, left))
    await file.close()
  } catch (error) {
    await file.close().catch(() => undefined)
    await rm(claim, { force: true })
    throw error
  }
}

async function create(claim: string): Promise<FileHandle> {
  for (;;) {
    try {
      return await open(claim, 'wx')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
    const written = await unlessGone(readFile(claim, 'utf8'))
    if (written === undefined) continue
    const holder = holderOf(written)
    if (holder === undefined || goesOn(holder)) throw new Error(taken(claim, holder))
    await clear(claim, written)
  }
}

/** Takes away what a run has left that ended without a word. What another run has put there meanwhile goes back. */
async function clear(claim: string, left: string): Promise<void> {
  const aside = `${claim}-${process.pid}`
  const moved = await unlessGone(rename(claim, aside).then(() => true))
  if (!moved) return
  if ((await readFile(aside, 'utf8')) !== left) await link(aside, claim).catch(() => undefined)
  await rm(aside, { force: true })
}

/** What comes of something that is done with a file; undefined when someone has taken the file away. */
function unlessGone<T>(done: Promise<T>): Promise<T | undefined> {
  return done.catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
}

const claimOf = (pid: number): string => `${JSON.stringify({ pid, host: hostname() } satisfies Holder)}\n`

function holderOf(written: string): Holder | undefined {
  try {
    return JSON.parse(written.split('\n')[0]!) as Holder
  } catch {
    return undefined
  }
}

/** Whether the run still goes on, as far as can be told from here. */
function goesOn({ pid, host }: Holder): boolean {
  if (host !== hostname()) return true
  // In a container every run may have the same number.
  if (pid === process.pid) return false
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

function taken(claim: string, holder: Holder | undefined): string {
  const who = holder === undefined ? '' : ` (process ${holder.pid} on ${holder.host})`
  return `another load test${who} is running and will write its own there; if there is none, remove ${claim}`
}

function reason(error: unknown, bytes: number): string {
  const { code, message } = error as NodeJS.ErrnoException
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return `there is no room for them, which is some ${sizeOf(bytes)} (${message})`
  return message
}

const TEXTS: Readonly<Record<ReportName, (result: RunResult) => string | Promise<string>>> = {
  'report.json': (result) => `${JSON.stringify(result, undefined, 2)}\n`,
  'junit.xml': junitXml,
  'report.html': reportPage,
}

/** What a second of a run, and of each server in it, adds to the reports at most, and what they have besides. */
const SIZES = { second: 4096, server: 1024, all: 512 * 1024 } as const

/** How many bytes the reports of a run will have, rather more than less. */
export const expectedBytes = (seconds: number, servers: number): number =>
  Math.ceil(SIZES.all + seconds * (SIZES.second + servers * SIZES.server))

/**
 * Writes what a run found into `folder`, which is made where it is missing: `report.json` (the result itself), `junit.xml` (for
 * continuous integration) and `report.html` (for people), each of them whole or not at all. Resolves with the paths; rejects with an
 * Error that says which could not be written, when all others are.
 */
export async function writeReports(result: RunResult, folder: string): Promise<string[]> {
  await makeFolder(folder)
  const problems: string[] = []
  for (const name of REPORTS)
    await write(join(folder, name), () => TEXTS[name](result)).catch((error: Error) =>
      problems.push(`${name} could not be written into ${folder}: ${error.message}`),
    )
  if (problems.length > 0) throw new Error(problems.join('\n'))
  return REPORTS.map((name) => join(folder, name))
}

async function write(path: string, text: () => string | Promise<string>): Promise<void> {
  const part = `${path}.part`
  try {
    await writeFile(part, await text())
    await rename(part, path)
  } catch (error) {
    await rm(part, { force: true }).catch(() => undefined)
    throw error
  }
}
