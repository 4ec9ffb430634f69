import { createHash, randomUUID } from 'node:crypto'
import { existsSync, type FSWatcher, readFileSync, statSync, watch } from 'node:fs'
import { readdir, readFile, stat } from 'node:fs/promises'
import module, { createRequire } from 'node:module'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { pathToFileURL } from 'node:url'
import { type Clock, systemClock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import { isRoomDefinition, type RoomDefinition } from './definition.ts'
import { RoomDefinitionError } from './definition-check.ts'
import { errorText } from './failures.ts'

/** Imports the rooms of a folder, in TypeScript or JavaScript, and hashes the code of each room type. */

/** Files with another dot in their name (`arena.test.ts`, `vite.config.ts`, `types.d.ts`) contain no room type. */
const MODULE = /^[^.]+\.(ts|js|mjs)$/
const ROOM_FILE = /^(room|queue)\.(ts|js|mjs)$/

/** The folder of room types cannot be read, or has none. A restart does not help. */
export class RoomsFolderUnusable extends Error {
  override readonly name = 'RoomsFolderUnusable'
}

/** Contents of a rooms folder. */
interface FolderContents {
  /** Room types by the path of their file, in the order of the paths. */
  readonly rooms: Map<string, RoomDefinition>
  /** Files without a room type, such as helpers. */
  readonly others: Set<string>
  /** Errors of files that cannot be loaded. */
  readonly problems: RoomDefinitionError[]
}

/**
 * Returns the room types of a folder: one per module directly in it, and those of `room.ts` and `queue.ts` (or `.js`, `.mjs`) of each
 * subfolder. Ignores modules whose default export is not a room definition. TypeScript needs no build, only the package tsx, which is
 * loaded for it. Rejects with a RoomDefinitionError that names each file that cannot be loaded, and with RoomsFolderUnusable.
 */
export const loadRooms = async (folder: string, log?: Logger): Promise<RoomDefinition[]> => [
  ...(await loadRoomFiles(folder, log)).values(),
]

/** Returns the room types of a folder by the paths of their files, as `loadRooms` does. */
export async function loadRoomFiles(
  folder: string,
  log?: Logger,
): Promise<ReadonlyMap<string, RoomDefinition>> {
  const { rooms, others, problems } = await readFolder(folder)
  if (problems.length > 0) throw new RoomDefinitionError(problems.map(({ message }) => message).join('\n'))
  if (rooms.size === 0) throw new RoomsFolderUnusable(noRooms(folder))
  for (const file of others) log?.info({ file }, IGNORED)
  if ([...rooms.keys(), ...others].some((file) => file.endsWith('.ts'))) endCompiler()
  return rooms
}

const IGNORED = 'room file ignored: it has no export default defineRoom({ … })'
const noRooms = (folder: string): string =>
  `${folder} has no room types: put modules there whose default export is defineRoom({ … })`

async function readFolder(folder: string): Promise<FolderContents> {
  const rooms = new Map<string, RoomDefinition>()
  const others = new Set<string>()
  const problems: RoomDefinitionError[] = []
  for (const file of await roomFiles(folder)) {
    try {
      const definition = await loadRoom(file)
      if (definition === undefined) others.add(file)
      else {
        refuseSecond(rooms, file, definition.type)
        rooms.set(file, definition)
      }
    } catch (error) {
      if (!(error instanceof RoomDefinitionError)) throw error
      problems.push(error)
    }
  }
  return { rooms, others, problems }
}

/** Throws a RoomDefinitionError if another file has this room type. */
function refuseSecond(rooms: ReadonlyMap<string, RoomDefinition>, file: string, type: string): void {
  for (const [other, definition] of rooms)
    if (definition.type === type && other !== file)
      throw new RoomDefinitionError(`${other} and ${file} both define the room type ${JSON.stringify(type)}`)
}

/** Returns the room type of a module, without the cache of an earlier import. Undefined: the module has none. */
export const reloadRoom = (file: string): Promise<RoomDefinition | undefined> =>
  roomIn(file, importTypeScript(file))

/** Returns the room type of a module. Undefined: the module has none. */
const loadRoom = (file: string): Promise<RoomDefinition | undefined> =>
  roomIn(file, file.endsWith('.ts') ? importTypeScript(file) : importPlain(file))

async function roomIn(file: string, imported: Promise<unknown>): Promise<RoomDefinition | undefined> {
  const definition = defaultOf(await imported.catch((error: unknown) => cannotLoad(file, error)))
  return isRoomDefinition(definition)
    ? Object.freeze({ ...definition, codeHash: await codeHash(file) })
    : undefined
}

/** Returns the files of a folder that may contain a room type, in the order of their names. */
async function roomFiles(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch((error: unknown) => {
    throw new RoomsFolderUnusable(`the folder of room types ${folder} cannot be read: ${errorText(error)}`)
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

/** Imports JavaScript without tsx, unless it imports TypeScript. */
async function importPlain(file: string): Promise<unknown> {
  try {
    return await import(pathToFileURL(file).href)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_UNKNOWN_FILE_EXTENSION') throw error
    return importTypeScript(file)
  }
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

/** Returns the line of a file in a stack, as text. A syntax error has its line in the message. */
function lineOf(file: string, stack: string): string {
  const frame = stack.split('\n').find((line) => /^ +at /.test(line) && line.includes(file))
  const [, line] = frame?.slice(frame.indexOf(file) + file.length).match(/^(?:\?[^:]*)?:(\d+):\d+\)?$/) ?? []
  return line === undefined ? '' : ` (line ${line})`
}

/** Returns the name of a package that was not found. Packages are searched from the room's folder upwards, not from the program's. */
const missingPackage = (error: unknown): string | undefined =>
  /^Cannot find (?:module|package) '([^'./][^']*)'/.exec((error as Error | undefined)?.message ?? '')?.[1]

/** Returns the default export of a module. CommonJS modules have it one level further down. */
function defaultOf(module: unknown): unknown {
  const first = (module as { default?: unknown }).default
  return isRoomDefinition(first) ? first : (first as { default?: unknown } | undefined)?.default
}

/** Editors write a file in several steps. It is read when it has not changed for this long. */
const STILL_MS = 100

/** Loads rooms as `loadRooms` does, for development: logs files that cannot be loaded, and loads them after the edit that repairs them. */
export async function developRooms(
  folder: string,
  log: Logger,
  clock: Clock = systemClock,
): Promise<DevelopedRooms> {
  const contents = await readFolder(folder)
  const { rooms, others, problems } = contents
  for (const { message } of problems) log.error({ reason: message }, FAILED)
  for (const file of others) log.info({ file }, IGNORED)
  if (rooms.size === 0 && problems.length === 0) log.warn({ reason: noRooms(folder) }, 'no room types yet')
  return new DevelopedRooms(folder, contents, log, clock)
}

const FAILED = 'room file failed'

/** Room types of a folder during development. */
class DevelopedRooms {
  readonly rooms: readonly RoomDefinition[]
  readonly #folder: string
  readonly #contents: FolderContents
  readonly #log: Logger
  readonly #clock: Clock
  readonly #watchers = new Map<string, FSWatcher>()
  /** By file, cancels the reload after the last edit. */
  readonly #waiting = new Map<string, () => void>()
  #onChange: (definition: RoomDefinition) => void = () => {}
  #closed = false

  constructor(folder: string, contents: FolderContents, log: Logger, clock: Clock) {
    this.rooms = [...contents.rooms.values()]
    this.#folder = folder
    this.#contents = contents
    this.#log = log
    this.#clock = clock
  }

  /**
   * Calls `onChange` with the new definition after each edit of a room type: of its file, of a helper beside it, or of a file in the room's
   * subfolder. A file that cannot be loaded is logged, and its last definition stays.
   */
  watch(onChange: (definition: RoomDefinition) => void): void {
    const { rooms, others } = this.#contents
    this.#onChange = onChange
    this.#follow(resolve(this.#folder))
    for (const file of [...rooms.keys(), ...others]) this.#follow(dirname(file))
  }

  /** Stops watching. */
  close(): void {
    this.#closed = true
    for (const watcher of this.#watchers.values()) watcher.close()
    for (const cancel of this.#waiting.values()) cancel()
  }

  async #reload(file: string): Promise<void> {
    const { rooms, others } = this.#contents
    this.#waiting.delete(file)
    if (!existsSync(file)) {
      others.delete(file)
      if (rooms.has(file))
        this.#log.warn({ file }, 'room file gone: its room type runs on until the next start')
      return
    }
    try {
      const definition = await reloadRoom(file)
      if (definition === undefined) {
        if (rooms.has(file)) throw new RoomDefinitionError(`${file} has no export default defineRoom({ … })`)
        if (!others.has(file)) this.#log.info({ file }, IGNORED)
        others.add(file)
        // The rooms next to a helper may import it.
        for (const room of await roomFiles(this.#folder))
          if (dirname(room) === dirname(file) && !others.has(room)) await this.#reload(room)
        return
      }
      for (const other of rooms.keys()) if (!existsSync(other)) rooms.delete(other)
      refuseSecond(rooms, file, definition.type)
      others.delete(file)
      rooms.set(file, definition)
      this.#onChange(definition)
      this.#log.info({ file, room_type: definition.type }, 'room file reloaded')
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      this.#log.error({ reason: rooms.has(file) ? `${reason}; the old definition stays` : reason }, FAILED)
    }
  }

  async #changed(path: string): Promise<void> {
    const root = resolve(this.#folder)
    if (dirname(path) === root) {
      if (isFolder(path)) this.#follow(path)
      else this.#forget(path)
    }
    const files = await roomFiles(this.#folder).catch(() => [])
    if (this.#closed) return
    for (const file of new Set([...files, ...this.#contents.rooms.keys()])) {
      const ownFolder = dirname(file)
      const beside = ownFolder !== root && (ownFolder === dirname(path) || ownFolder === path)
      if (file !== path && !beside) continue
      this.#waiting.get(file)?.()
      this.#waiting.set(
        file,
        this.#clock.schedule(STILL_MS, () => void this.#reload(file)),
      )
    }
  }

  /** Watches folder by folder. On Linux, a recursive watch loses files once an editor has replaced them. */
  #follow(path: string): void {
    if (this.#closed || this.#watchers.has(path)) return
    try {
      const watcher = watch(path, (_, name) => void this.#changed(name === null ? path : join(path, name)))
      this.#watchers.set(path, watcher)
      watcher.unref()
      watcher.on('error', (error) =>
        this.#log.warn({ err: error, folder: path }, 'a folder is no longer watched for edits'),
      )
    } catch (error) {
      this.#log.warn(
        { err: error, folder: path },
        'a folder cannot be watched for edits: restart to load them',
      )
    }
  }

  #forget(path: string): void {
    this.#watchers.get(path)?.close()
    this.#watchers.delete(path)
  }
}

const isFolder = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false

/** Finds the relative path in `from './x.ts'`, `import './x.ts'`, `import('./x.ts')` and `require('./x')`. */
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

/** A room type with the hash of its code. */
interface Coded {
  readonly type: string
  readonly codeHash?: string
}

/** Returns one hash of the code of all room types of a node; `unknown` if one of them was not loaded from a file. */
export function roomsHash(definitions: Iterable<Coded>): string {
  const lines: string[] = []
  for (const { type, codeHash } of definitions) {
    if (codeHash === undefined) return 'unknown'
    lines.push(`${type} ${codeHash}\n`)
  }
  return createHash('sha256').update(lines.sort().join('')).digest('hex').slice(0, 12)
}

/** Returns the files of a module, itself first. */
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

/**
 * Imports a module that is TypeScript, or imports some, without the cache of an earlier import. The package tsx is loaded only for this.
 * The stacks of the module's errors name its files and lines. Rejects with what the module throws, and if tsx is not installed.
 */
export async function importTypeScript(file: string): Promise<unknown> {
  const tsx = await loadTsx()
  const folder = dirname(file)
  forgetCommonJs(folder)
  const namespace = randomUUID()
  const tsconfig = nearest(folder, 'tsconfig.json')
  // Without this option, tsx takes the tsconfig.json of the working directory.
  const esm = tsx.esm.register({ namespace, ...(tsconfig !== undefined && { tsconfig }) })
  const cjs = tsx.cjs.register({ namespace })
  // On Node 20 an import of CommonJS becomes a `data:` URL: a stack then has the whole source instead of file and line.
  if (isCommonJs(file)) return { default: cjs.require(file, import.meta.url) }
  return esm.import(pathToFileURL(file).href, import.meta.url)
}

/**
 * Ends the process in which the compiler of tsx runs. The next import starts another. If Node has no synchronous hooks (20, and 22 before
 * 22.15), tsx compiles in the thread of the hooks, and its compiler stays. Called when nothing is being imported.
 */
export function endCompiler(): void {
  if ('registerHooks' in module) return
  const compiler = createRequire(import.meta.resolve('tsx/esm/api')).resolve('esbuild')
  module.register(END_IN_HOOKS, { parentURL: import.meta.url, data: pathToFileURL(compiler).href })
}

const END_IN_HOOKS =
  'data:text/javascript,export const initialize = async (compiler) => (await import(compiler)).stop()'

/** Loads tsx. Its compiler may run in this thread only while it compiles. Otherwise esbuild keeps a thread and a process. */
async function loadTsx() {
  const { ESBUILD_WORKER_THREADS: before } = process.env
  process.env.ESBUILD_WORKER_THREADS = '0'
  try {
    const [esm, cjs] = await Promise.all([import('tsx/esm/api'), import('tsx/cjs/api')])
    return { esm, cjs }
  } catch (cause) {
    throw new Error('it is TypeScript, or imports some: npm install tsx, or build it to JavaScript', {
      cause,
    })
  } finally {
    if (before === undefined) delete process.env.ESBUILD_WORKER_THREADS
    else process.env.ESBUILD_WORKER_THREADS = before
  }
}

/** Returns true if Node takes a file as CommonJS, by its name and its package. */
function isCommonJs(file: string): boolean {
  if (file.endsWith('.mjs')) return false
  const description = nearest(dirname(file), 'package.json')
  if (description === undefined) return true
  const { type } = JSON.parse(readFileSync(description, 'utf8')) as { type?: unknown }
  return type !== 'module'
}

/** Forgets imported CommonJS modules. ES modules are imported again each time anyway. */
function forgetCommonJs(folder: string): void {
  const { cache } = createRequire(import.meta.url)
  for (const path of Object.keys(cache))
    if (path.startsWith(folder + sep) && !path.includes(`${sep}node_modules${sep}`)) delete cache[path]
}

/** Returns the path of the nearest file of this name, in `folder` or above. */
function nearest(folder: string, name: string): string | undefined {
  const file = join(folder, name)
  if (existsSync(file)) return file
  const above = dirname(folder)
  return above === folder ? undefined : nearest(above, name)
}
