import { type FSWatcher, watch } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { type Clock, systemClock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { RoomDefinition } from './definition.ts'
import { loadRoom, roomFiles } from './loader.ts'

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
  const waiting = new Map<string, () => void>()
  const reload = async (file: string) => {
    waiting.delete(file)
    try {
      on_change(await loadRoom(file))
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error)
      log.warn({ file }, `${text}; the old definition stays`)
    }
  }
  const changed = async (name: string) => {
    const path = resolve(folder, name)
    const files = await roomFiles(folder).catch(() => [])
    for (const file of files) {
      const own_folder = dirname(file)
      if (file !== path && (own_folder === resolve(folder) || own_folder !== dirname(path))) continue
      waiting.get(file)?.()
      waiting.set(
        file,
        clock.schedule(STILL_MS, () => void reload(file)),
      )
    }
  }
  let watcher: FSWatcher | undefined
  try {
    watcher = watch(folder, { recursive: true }, (_, name) => {
      if (name) void changed(name)
    })
    watcher.unref()
    watcher.on('error', (error) => log.warn({ err: error }, `${folder} is no longer watched for edits`))
  } catch (error) {
    log.warn({ err: error }, `${folder} cannot be watched for edits; restart to load them`)
  }
  return {
    close: () => {
      watcher?.close()
      for (const cancel of waiting.values()) cancel()
    },
  }
}
