import { startControl } from '../../../control/main.ts'
import { live } from '../../../deploy/cli/service.ts'
import { type Clock, systemClock } from '../../../shared/clock.ts'
import { describeProblems, parseConfig } from '../../../shared/config.ts'
import { createLog } from '../../../shared/log.ts'
import { NODES } from '../../../shared/node-registry.ts'
import { systemRandom } from '../../../shared/random.ts'
import { openStore } from '../../../shared/store/open.ts'
import type { Records, Store, StoredRecord, Write } from '../../../shared/store/port.ts'
import { overriding } from './recording-store.ts'

/*
 * Control of a chaos run: node control.ts <URL of its own Redis>, with the environment of `roomful control`. Its Redis, which is never broken, has
 * projects and keys: what the data plane loses with its Redis is the question. Records of players are with the nodes, which read them.
 */

/** So far behind is control's clock: a token is good at nodes whose clocks jump either way. */
const LAG_MS = 12 * 3_600_000

const [ownUrl] = process.argv.slice(2)
const parsed = parseConfig('control', process.env)
if (!parsed.ok || ownUrl === undefined) {
  process.stderr.write(
    `control cannot start:\n${parsed.ok ? 'the URL is missing' : describeProblems(parsed)}\n`,
  )
  process.exit(2)
}
const { config } = parsed
const log = createLog(config, {})
const clock: Clock = { ...systemClock, now: () => systemClock.now() - LAG_MS }

/** Keys and indexes that nodes read, or write. */
const isShared = (key: string): boolean =>
  key.startsWith(NODES) || /^\{control\}:(player|bans|player-data):/.test(key)

const keyOf = (write: Write): string =>
  'put' in write ? write.put : 'remove' in write ? write.remove : write.index

/** A change of a player is one write with its idempotency key, which is then with the nodes. */
const split = (own: Records, shared: Records): Records =>
  overriding(own, {
    read: async (keys) => {
      const parts = keys.some(isShared) ? [shared] : keys.some(isMemory) ? [own, shared] : [own]
      const found = await Promise.all(parts.map((part) => part.read(keys)))
      return keys.map((_, i): StoredRecord | undefined => found.find((records) => records[i])?.[i])
    },
    page: (index, request) => (isShared(index) ? shared : own).page(index, request),
    write: (writes) => (writes.some((write) => isShared(keyOf(write))) ? shared : own).write(writes),
  })

const isMemory = (key: string): boolean => key.startsWith('{control}:idempotency:')

const start = async () => {
  const parts = { log, clock, random: systemRandom }
  const own = await openStore({ redisUrl: ownUrl, ...parts })
  const shared = await openStore({ ...config, ...parts })
  const store: Store = overriding(own, { bus: shared.bus, records: split(own.records, shared.records) })
  const control = await startControl({ config, store, ...parts })
  return {
    addresses: { http: control.url },
    close: async () => {
      await control.close()
      await Promise.all([own.close(), shared.close()])
    },
  }
}

live('control', start, log, process)
