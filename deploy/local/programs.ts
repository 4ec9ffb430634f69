import { accessSync, constants, readdirSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { delimiter, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

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

/** How processes of the service are started. */
interface RoomfulProgram {
  /** The words behind `node`. */
  readonly words: readonly string[]
  /** Whether it is the compiled code, which starts faster. */
  readonly compiled: boolean
}

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const BUILT = 'dist/deploy/cli/roomful.js'
const SOURCE = 'deploy/cli/roomful.ts'
/** What the compiled processes are made of. */
const SOURCES = ['shared', 'control', 'dataplane', 'client', 'examples', 'deploy/cli', 'deploy/playground']

/** The compiled command line of the folder `root` where it was built from the sources as they are, else the sources themselves. */
export function roomfulProgram(root: string = ROOT): RoomfulProgram {
  const built = changed(join(root, BUILT))
  const compiled = built !== undefined && SOURCES.every((folder) => newestIn(join(root, folder)) <= built)
  if (compiled) return { words: [join(root, BUILT)], compiled }
  return { words: ['--import', tsx(), join(root, SOURCE)], compiled }
}

/** What lets node run TypeScript, by its address, which holds in every folder. */
const tsx = (): string => pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href

/** When the file was last changed; undefined: there is none. */
const changed = (file: string): number | undefined => statSync(file, { throwIfNoEntry: false })?.mtimeMs

/** When the newest source below `folder` was changed; tests are in no build. */
function newestIn(folder: string): number {
  let newest = 0
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' }))
    if (/\.(tsx?|css|html|svg|lua|json)$/.test(name) && !name.endsWith('.test.ts'))
      newest = Math.max(newest, changed(join(folder, name)) ?? 0)
  return newest
}
