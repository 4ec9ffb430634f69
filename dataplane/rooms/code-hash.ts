import { createHash } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import { dirname, relative, resolve } from 'node:path'
import type { RoomDefinition } from './definition.ts'

/** The relative path in `from './x.ts'`, `import './x.ts'`, `import('./x.ts')` and `require('./x')`. */
const IMPORTED = /\b(?:from|import|require)\s*\(?\s*['"](\.{1,2}\/[^'"\n]+)['"]/g
/** Endings that an import may leave out. */
const ENDINGS = ['', '.ts', '.tsx', '.js', '.mjs', '.cjs', '.json', '/index.ts', '/index.js']

/**
 * Returns a hash of the code of a room type: of its file and of every file that it imports by a relative path, by their contents and their
 * paths from that file. Packages do not count. 12 hexadecimal digits.
 */
export async function codeHash(file: string): Promise<string> {
  const hash = createHash('sha256')
  for (const path of [...(await filesOf(file))].sort())
    hash
      .update(`${relative(dirname(file), path)}\0`)
      .update(await readFile(path))
      .update('\0')
  return hash.digest('hex').slice(0, 12)
}

/** Returns one hash of the code of all room types of a node; `unknown` if one of them was not loaded from a file. */
export function roomsHash(definitions: Iterable<Pick<RoomDefinition, 'type' | 'codeHash'>>): string {
  const lines: string[] = []
  for (const { type, codeHash } of definitions) {
    if (codeHash === undefined) return 'unknown'
    lines.push(`${type} ${codeHash}\n`)
  }
  return createHash('sha256').update(lines.sort().join('')).digest('hex').slice(0, 12)
}

/** Returns the files that a module consists of, itself first. */
async function filesOf(file: string): Promise<Set<string>> {
  const files = new Set([file])
  for (const path of files) {
    if (path.endsWith('.json')) continue
    for (const [, imported] of (await readFile(path, 'utf8')).matchAll(IMPORTED)) {
      const found = await resolved(resolve(dirname(path), imported!))
      if (found !== undefined) files.add(found)
    }
  }
  return files
}

/** Returns the file that an import of `path` finds. TypeScript may name `x.ts` as `x.js`. */
async function resolved(path: string): Promise<string | undefined> {
  for (const candidate of [...ENDINGS.map((ending) => path + ending), path.replace(/js$/, 'ts')])
    if ((await stat(candidate).catch(() => undefined))?.isFile()) return candidate
  return undefined
}
