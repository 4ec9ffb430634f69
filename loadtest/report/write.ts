import { rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { RunResult } from '../result.ts'
import { makeFolder, REPORTS, type ReportName } from './folder.ts'
import { junitXml } from './junit.ts'
import { reportPage } from './page.ts'

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
