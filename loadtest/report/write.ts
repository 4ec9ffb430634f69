import { access, constants, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { RunResult } from '../result.ts'
import { junitXml } from './junit.ts'
import { reportPage } from './page.ts'

/** Makes `folder` where it is missing. To be called before a run, so that none is made for nothing; rejects with an Error that says why. */
export async function prepareFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true })
    await access(folder, constants.W_OK)
  } catch (error) {
    throw new Error(
      `Reports cannot be written into ${folder} (${(error as Error).message}). Name a folder with --out.`,
    )
  }
}

/**
 * Writes what a run found into `folder`, which is made where it is missing: `report.json` (the result itself), `junit.xml` (for
 * continuous integration) and `report.html` (for people). Resolves with the paths.
 */
export async function writeReports(result: RunResult, folder: string): Promise<string[]> {
  await mkdir(folder, { recursive: true })
  const files = {
    'report.json': `${JSON.stringify(result, undefined, 2)}\n`,
    'junit.xml': junitXml(result),
    'report.html': reportPage(result),
  }
  return await Promise.all(
    Object.entries(files).map(async ([name, text]) => {
      const path = join(folder, name)
      await writeFile(path, text)
      return path
    }),
  )
}
