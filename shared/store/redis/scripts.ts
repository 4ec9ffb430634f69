import { readFileSync } from 'node:fs'
import type { Redis } from 'ioredis'

/** Runs one Lua script of `lua/`; KEYS and ARGV are in the head of its file. Strings of the reply come as Buffers. */
export type Script = (keys: readonly string[], args: readonly (string | Buffer)[]) => Promise<unknown>

/** Every script, by the name of its file. */
export interface Scripts {
  readonly write: Script
  readonly inspect: Script
  readonly claim: Script
  readonly commit: Script
  readonly snapshot: Script
  readonly release: Script
  readonly refresh: Script
}

/** Reads the scripts from disk and makes them known to `redis`, which sends each in full once per connection and by its hash after. */
export function loadScripts(redis: Redis): Scripts {
  const load = (name: string): Script => {
    const lua = readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), 'utf8')
    const command = `roomful_${name}`
    redis.defineCommand(command, { lua })
    const run: (...args: (string | Buffer | number)[]) => Promise<unknown> = Reflect.get(
      redis,
      `${command}Buffer`,
    )
    return (keys, args) => run.call(redis, keys.length, ...keys, ...args)
  }
  return {
    write: load('write'),
    inspect: load('inspect'),
    claim: load('claim'),
    commit: load('commit'),
    snapshot: load('snapshot'),
    release: load('release'),
    refresh: load('refresh'),
  }
}
