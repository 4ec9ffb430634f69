import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'

/** Where servers are installed that PATH often lacks. */
const SYSTEM_FOLDERS = ['/usr/sbin', '/usr/local/sbin', '/opt/homebrew/bin']

/** The path of the first of these programs that is in `path` (as in PATH) or where systems keep servers; undefined: none is. */
export function findProgram(names: readonly string[], path: string | undefined): string | undefined {
  const folders = [...(path ?? '').split(delimiter).filter(Boolean), ...SYSTEM_FOLDERS]
  for (const name of names)
    for (const folder of folders) {
      const file = join(folder, name)
      if (isExecutable(file)) return file
    }
  return undefined
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}
