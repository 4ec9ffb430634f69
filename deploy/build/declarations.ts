import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

const RELATIVE_TS = /((?:from|import)\s*\(?\s*['"]\.{1,2}\/[^'"]*)\.ts(['"])/g

/** Lets the declarations under `folder` name each other as `.js`, which every compiler resolves; the compiler leaves `.ts` there. */
export async function renameImports(folder: string): Promise<void> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  for (const entry of entries) {
    if (!entry.name.endsWith('.d.ts')) continue
    const file = join(entry.parentPath, entry.name)
    const text = await readFile(file, 'utf8')
    await writeFile(file, text.replace(RELATIVE_TS, '$1.js$2'))
  }
}
