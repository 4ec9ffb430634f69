import { accessSync, constants, readdirSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { delimiter, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

/** Folders of servers that PATH often lacks. */
const SYSTEM_FOLDERS = ['/usr/sbin', '/usr/local/sbin', '/opt/homebrew/bin']

/** Returns the path of the first of these programs that is in `path` (as in PATH) or in a folder of servers; undefined: none is. */
export function findProgram(names: readonly string[], path: string | undefined): string | undefined {
  const folders = [...(path ?? '').split(delimiter).filter(Boolean), ...SYSTEM_FOLDERS]
  return names.flatMap((name) => folders.map((folder) => join(folder, name))).find(isExecutable)
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const BUILT = 'dist/deploy/cli/roomful.js'
const SOURCE = 'deploy/cli/roomful.ts'
/** Folders from which the compiled processes are built. */
const SOURCES = ['shared', 'control', 'dataplane', 'client', 'examples', 'deploy/cli', 'deploy/playground']

/**
 * Returns the words behind `node` that run the command line of the folder `root`: the compiled code, which starts faster, if it was built
 * from the present sources; else the sources.
 */
export function roomfulProgram(root: string = ROOT): {
  readonly words: readonly string[]
  readonly compiled: boolean
} {
  const built = changed(join(root, BUILT))
  const compiled = built !== undefined && SOURCES.every((folder) => newestIn(join(root, folder)) <= built)
  if (compiled) return { words: [join(root, BUILT)], compiled }
  // The address of the loader holds in every working folder.
  const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
  return { words: ['--import', tsx, join(root, SOURCE)], compiled }
}

/** When the file was last changed; undefined: there is none. */
const changed = (file: string): number | undefined => statSync(file, { throwIfNoEntry: false })?.mtimeMs

/** When the newest source below `folder` was changed; tests are in no build. */
const newestIn = (folder: string): number =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(tsx?|css|html|svg|lua|json)$/.test(name) && !name.endsWith('.test.ts'))
    .reduce((newest, name) => Math.max(newest, changed(join(folder, name)) ?? 0), 0)
