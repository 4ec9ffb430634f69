import { type FSWatcher, statSync, watch } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { type Clock, systemClock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { RoomDefinition } from './definition.ts'
import { reloadRoom, roomFiles } from './loader.ts'

/** Editors write a file in several steps; it is read when it has been still for so long. */
const STILL_MS = 100

export interface Watching {
  close(): void
}

/**
 * Calls `on_change` with the new definition whenever a room type of `folder` is edited, for development: the file itself, or anything
 * beside it in a room's own subfolder. A file that cannot be loaded is logged, and what runs goes on.
 */
export function watchRooms(
  folder: string,
  on_change: (definition: RoomDefinition) => void,
  log: Logger,
  clock: Clock = systemClock,
): Watching {
  const root = resolve(folder)
  const watchers = new Map<string, FSWatcher>()
  const waiting = new Map<string, () => void>()
  let closed = false
  const reload = async (file: string) => {
    waiting.delete(file)
    try {
      on_change(await reloadRoom(file))
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error)
      log.warn({ file }, `${text}; the old definition stays`)
    }
  }
  const changed = async (path: string) => {
    if (dirname(path) === root) {
      if (isFolder(path)) follow(path)
      else forget(path)
    }
    const files = await roomFiles(folder).catch(() => [])
    if (closed) return
    for (const file of files) {
      const own_folder = dirname(file)
      const beside = own_folder !== root && (own_folder === dirname(path) || own_folder === path)
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
      for (const file of files) follow(dirname(file))
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
