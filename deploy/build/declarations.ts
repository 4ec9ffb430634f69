import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

const RELATIVE_TS = /((?:from|import)\s*\(?\s*['"])(\.{1,2}\/[^'"]*)\.ts(['"])/g

/**
 * Keeps the declarations below `folder` that users can meet: those of `entries`, paths below it, and of all that they import. The others are
 * removed. Those that stay name each other as `.js`, which every compiler resolves; the compiler leaves `.ts` there.
 */
export async function keepDeclarations(folder: string, entries: readonly string[]): Promise<number> {
  const kept = new Set(entries.map((entry) => join(folder, entry)))
  for (const file of kept) {
    const text = await readFile(file, 'utf8')
    for (const [, , imported] of text.matchAll(RELATIVE_TS)) kept.add(join(dirname(file), `${imported}.d.ts`))
    await writeFile(file, text.replace(RELATIVE_TS, '$1$2.js$3'))
  }
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    const file = join(entry.parentPath, entry.name)
    if (entry.name.endsWith('.d.ts') && !kept.has(file)) await rm(file)
  }
  return kept.size
}
