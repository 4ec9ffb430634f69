import { access, constants, mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { RunResult } from '../result.ts'
import { junitXml } from './junit.ts'
import { reportPage } from './page.ts'

/** The reports of a run: the result itself, for continuous integration, and for people. */
const REPORTS: Readonly<Record<string, (result: RunResult) => string>> = {
  'report.json': (result) => `${JSON.stringify(result, undefined, 2)}\n`,
  'junit.xml': junitXml,
  'report.html': reportPage,
}

/**
 * Creates the folder if it is missing, and removes the reports of earlier runs, so that none is taken for a report of this run. Rejects
 * with an Error that says why reports cannot be written there.
 */
export async function prepareFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true })
    await access(folder, constants.W_OK)
    for (const name of Object.keys(REPORTS)) await rm(join(folder, name), { force: true })
  } catch (error) {
    const { message } = error as Error
    throw new Error(`Reports cannot be written into ${folder}: ${message}. --out names another folder.`)
  }
}

/**
 * Writes the reports. Each appears complete or not at all. Resolves with their paths. Rejects with an Error that names those that could
 * not be written, after all others have been.
 */
export async function writeReports(result: RunResult, folder: string): Promise<string[]> {
  const problems: string[] = []
  const paths: string[] = []
  await mkdir(folder, { recursive: true }).catch(() => undefined)
  for (const [name, text] of Object.entries(REPORTS)) {
    const path = join(folder, name)
    try {
      await writeFile(`${path}.part`, text(result))
      await rename(`${path}.part`, path)
      paths.push(path)
    } catch (error) {
      await rm(`${path}.part`, { force: true }).catch(() => undefined)
      problems.push(`${name} could not be written into ${folder}: ${(error as Error).message}`)
    }
  }
  if (problems.length > 0) throw new Error(problems.join('\n'))
  return paths
}
