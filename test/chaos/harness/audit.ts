import { pino } from 'pino'
import { JournalFormat } from '../../../dataplane/rooms/journal.ts'
import { restore } from '../../../dataplane/rooms/restore.ts'
import { redisStore } from '../../../shared/store/redis/redis.ts'
import type { End } from '../checker/history.ts'

const RECORD_TTL_MS = 60_000

/** What the store holds of each room, as a new owner would find it. Every node must be gone. */
export async function audit(
  redis_url: string,
  key_prefix: string,
  project_id: string,
  rooms: readonly string[],
): Promise<End['records']> {
  const store = await redisStore({ url: redis_url, key_prefix, log: pino({ level: 'silent' }) })
  const format = new JournalFormat()
  try {
    const found = await Promise.all(
      rooms.map(async (room) => {
        const name = `${project_id}/${room}`
        const owner = await store.rooms.inspect(name)
        if (!owner) return []
        const claim = await store.rooms.claim(name, 'auditor', owner.epoch, RECORD_TTL_MS)
        const restored = claim && restore(claim, format)
        if (!restored) return []
        const { seq, checksum, state } = restored
        return [{ room, version: owner.version, seq, checksum, state }]
      }),
    )
    return found.flat()
  } finally {
    await store.close()
  }
}
