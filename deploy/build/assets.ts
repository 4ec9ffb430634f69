import { cp, readdir } from 'node:fs/promises'
import { join } from 'node:path'

/** Not wanted: what is compiled, pages, what starts TypeScript from source, and the admin page, which goes as a bundle. */
const LEFT_OUT = /\.(tsx?|md)$|-from-source\.mjs$|dataplane\/ops\/page\//

/** Folders whose files besides TypeScript (Lua, HTML, CSS, JSON …) go into the package. */
const FOLDERS = ['shared', 'control', 'dataplane', 'client', 'examples']

/** Copies what the compiler leaves out from `root` to the same places under `target`; resolves with how many files that were. */
export async function copyAssets(root: string, target: string): Promise<number> {
  let copied = 0
  for (const folder of FOLDERS) {
    const entries = await readdir(join(root, folder), { recursive: true, withFileTypes: true })
    for (const entry of entries) {
      const file = join(entry.parentPath, entry.name)
      if (!entry.isFile() || LEFT_OUT.test(file)) continue
      await cp(file, join(target, file.slice(root.length)))
      copied += 1
    }
  }
  return copied
}
