import { readFileSync } from 'node:fs'
import type { Redis } from 'ioredis'

/** Every script of `lua/`, by the name of its file. */
const NAMES = [
  'write',
  'renew_lease',
  'inspect',
  'reserve',
  'count',
  'claim',
  'open',
  'recall',
  'note_stuck',
  'commit',
  'snapshot',
  'read_room',
  'release',
  'refresh',
  'quarantine',
  'set_wakeup',
  'take_wakeups',
  'announce_notices',
  'take_notices',
  'settle_notices',
  'write_listing',
  'read_listing',
  'permitted',
] as const

export type ScriptName = (typeof NAMES)[number]

const read = (name: string): string => readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), 'utf8')

/** What a connection for commands has to know of the scripts: each with what all share before it. */
export const SCRIPTS: Record<string, { lua: string }> = Object.fromEntries(
  NAMES.map((name) => [`roomful_${name}`, { lua: ['prelude', 'fence', 'owner', name].map(read).join('\n') }]),
)

/**
 * Runs a script at `redis`, which is sent each in full once per connection and by its hash after. KEYS and ARGV are in the head of the
 * script's file. Strings of the reply come as Buffers.
 */
export function runScript(
  redis: Redis,
  name: ScriptName,
  keys: readonly string[],
  args: readonly (string | Buffer)[],
): Promise<unknown> {
  const run: (...args: (string | Buffer | number)[]) => Promise<unknown> = Reflect.get(
    redis,
    `roomful_${name}Buffer`,
  )
  return run.call(redis, keys.length, ...keys, ...args)
}
