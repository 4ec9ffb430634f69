import { existsSync, type FSWatcher, statSync, watch } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join, resolve, sep } from 'node:path'
import { pathToFileURL } from 'node:url'
import { type Clock, systemClock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import { isRoomDefinition, type RoomDefinition } from './definition.ts'
import { RoomDefinitionError } from './definition-check.ts'
import { errorText } from './failures.ts'

/** Files with another dot in their name (`arena.test.ts`, `vite.config.ts`, `types.d.ts`) are something else. */
const MODULE = /^[^.]+\.(ts|js|mjs)$/
const ROOM_FILE = /^room\.(ts|js|mjs)$/

/**
 * The room types of a folder: one per module directly in it, and one per subfolder that has a `room.ts` (or `.js`, `.mjs`).
 * TypeScript needs no build, but the package tsx, which is loaded for it alone. Rejects with a RoomDefinitionError that names the file.
 */
export async function loadRooms(folder: string): Promise<RoomDefinition[]> {
  const files = await roomFiles(folder)
  if (files.length === 0)
    throw new RoomDefinitionError(
      `${folder} has no room types: put modules there whose default export is defineRoom({ … })`,
    )
  const byType = new Map<string, string>()
  const definitions: RoomDefinition[] = []
  for (const file of files) {
    const definition = await loadRoom(file)
    const other = byType.get(definition.type)
    if (other !== undefined)
      throw new RoomDefinitionError(
        `${other} and ${file} both define the room type ${JSON.stringify(definition.type)}`,
      )
    byType.set(definition.type, file)
    definitions.push(definition)
  }
  return definitions
}

/** The room type of one module, as the file is now: nothing is taken from an earlier import. */
export const reloadRoom = (file: string): Promise<RoomDefinition> => roomIn(file, importFresh)

/** The room type of one module. */
const loadRoom = (file: string): Promise<RoomDefinition> =>
  roomIn(file, file.endsWith('.ts') ? importFresh : importPlain)

async function roomIn(
  file: string,
  importModule: (file: string) => Promise<unknown>,
): Promise<RoomDefinition> {
  const definition = defaultOf(await importModule(file).catch((error: unknown) => cannotLoad(file, error)))
  if (isRoomDefinition(definition)) return definition
  throw new RoomDefinitionError(
    `${file} has no room as its default export: write export default defineRoom({ … })`,
  )
}

/** Every file of a folder that should hold a room type, in the order of their names. */
async function roomFiles(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch((error: unknown) => {
    throw new RoomDefinitionError(`the folder of room types ${folder} cannot be read: ${errorText(error)}`)
  })
  const files: string[] = []
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(resolve(folder), entry.name)
    const kind = entry.isSymbolicLink() ? await stat(path).catch(() => entry) : entry
    if (kind.isFile() && MODULE.test(entry.name)) files.push(path)
    if (kind.isDirectory() && entry.name !== 'node_modules') files.push(...(await roomFilesIn(path)))
  }
  return files
}

async function roomFilesIn(folder: string): Promise<string[]> {
  const names = await readdir(folder).catch(() => [])
  return names.filter((name) => ROOM_FILE.test(name)).map((name) => join(folder, name))
}

/** JavaScript needs nothing but Node, unless it imports TypeScript. */
async function importPlain(file: string): Promise<unknown> {
  try {
    return await import(pathToFileURL(file).href)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_UNKNOWN_FILE_EXTENSION') throw error
    return importFresh(file)
  }
}

async function importFresh(file: string): Promise<unknown> {
  const { tsImport } = await import('tsx/esm/api').catch((cause: unknown) => {
    throw new Error('it is TypeScript, or imports some: npm install tsx, or build it to JavaScript', {
      cause,
    })
  })
  forgetCommonJs(dirname(file))
  const tsconfig = nearestTsconfig(dirname(file))
  return tsImport(pathToFileURL(file).href, {
    parentURL: import.meta.url,
    // Otherwise that of the working directory.
    ...(tsconfig === undefined ? {} : { tsconfig }),
  })
}

function cannotLoad(file: string, error: unknown): never {
  if (error instanceof Error && error.name === 'RoomDefinitionError')
    throw new RoomDefinitionError(`${file}: ${error.message}`)
  const missing = missingPackage(error)
  if (missing !== undefined)
    throw new RoomDefinitionError(
      `${file} cannot be loaded: it imports ${missing}, which is not installed in its folder or above: npm install ${missing} there`,
    )
  const { message, stack = '' } = error instanceof Error ? error : { message: String(error) }
  throw new RoomDefinitionError(`${file} cannot be loaded: ${message}${lineOf(file, stack)}`, {
    cause: error,
  })
}

/** Where in a file it was thrown, by a stack; what cannot be read as code says that in its message. */
function lineOf(file: string, stack: string): string {
  const frame = stack.split('\n').find((line) => /^ +at /.test(line) && line.includes(file))
  const [, line] = frame?.slice(frame.indexOf(file) + file.length).match(/^(?:\?[^:]*)?:(\d+):\d+\)?$/) ?? []
  return line === undefined ? '' : ` (line ${line})`
}

/** Packages are searched from a room's own folder upwards, which is not where the program is. */
const missingPackage = (error: unknown): string | undefined =>
  /^Cannot find (?:module|package) '([^'./][^']*)'/.exec((error as Error | undefined)?.message ?? '')?.[1]

/** ES modules are imported again each time; in a package that is none ("type" is not "module"), what a file requires would be remembered. */
function forgetCommonJs(folder: string): void {
  const { cache } = createRequire(import.meta.url)
  for (const path of Object.keys(cache))
    if (path.startsWith(folder + sep) && !path.includes(`${sep}node_modules${sep}`)) delete cache[path]
}

function nearestTsconfig(folder: string): string | undefined {
  const file = join(folder, 'tsconfig.json')
  if (existsSync(file)) return file
  const above = dirname(folder)
  return above === folder ? undefined : nearestTsconfig(above)
}

/** CommonJS modules have their default export one level further down. */
function defaultOf(module: unknown): unknown {
  const first = (module as { default?: unknown }).default
  return isRoomDefinition(first) ? first : (first as { default?: unknown } | undefined)?.default
}

/** Editors write a file in several steps; it is read when it has been still for so long. */
const STILL_MS = 100

interface RoomWatcher {
  close(): void
}

/**
 * Calls `onChange` with the new definition whenever a room type of `folder` is edited, for development: the file itself, or anything
 * beside it in a room's own subfolder. A file that cannot be loaded is logged, and what runs goes on.
 */
export function watchRooms(
  folder: string,
  onChange: (definition: RoomDefinition) => void,
  log: Logger,
  clock: Clock = systemClock,
): RoomWatcher {
  const root = resolve(folder)
  const watchers = new Map<string, FSWatcher>()
  const waiting = new Map<string, () => void>()
  /** The files whose room types run. */
  const loaded = new Set<string>()
  let closed = false
  const reload = async (file: string) => {
    waiting.delete(file)
    if (!existsSync(file)) {
      if (loaded.has(file)) log.warn({ file }, `${file} is gone; its room type runs on until the next start`)
      return
    }
    try {
      onChange(await reloadRoom(file))
      loaded.add(file)
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error)
      const goesOn = loaded.has(file) ? 'the old definition stays' : 'it has no room type yet'
      log.warn({ file }, `${text}; ${goesOn}`)
    }
  }
  const changed = async (path: string) => {
    if (dirname(path) === root) {
      if (isFolder(path)) follow(path)
      else forget(path)
    }
    const files = await roomFiles(folder).catch(() => [])
    if (closed) return
    for (const file of new Set([...files, ...loaded])) {
      const ownFolder = dirname(file)
      const beside = ownFolder !== root && (ownFolder === dirname(path) || ownFolder === path)
      if (file !== path && !beside) continue
      waiting.get(file)?.()
      waiting.set(
        file,
        clock.schedule(STILL_MS, () => void reload(file)),
      )
    }
  }
  // Folder by folder: a recursive watch loses files, on Linux, once an editor has put another in their place.
  const follow = (path: string) => {
    if (closed || watchers.has(path)) return
    try {
      const watcher = watch(path, (_, name) => void changed(name === null ? path : join(path, name)))
      watchers.set(path, watcher)
      watcher.unref()
      watcher.on('error', (error) => log.warn({ err: error }, `${path} is no longer watched for edits`))
    } catch (error) {
      log.warn({ err: error }, `${path} cannot be watched for edits; restart to load them`)
    }
  }
  const forget = (path: string) => {
    watchers.get(path)?.close()
    watchers.delete(path)
  }
  follow(root)
  void roomFiles(folder).then(
    (files) => {
      for (const file of files) {
        loaded.add(file)
        follow(dirname(file))
      }
    },
    () => {},
  )
  return {
    close: () => {
      closed = true
      for (const watcher of watchers.values()) watcher.close()
      for (const cancel of waiting.values()) cancel()
    },
  }
}

const isFolder = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false
