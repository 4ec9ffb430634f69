import { pino } from 'pino'
import { JournalFormat, restore, UnreadableRecord } from '../../../dataplane/rooms/journal.ts'
import { redisStore } from '../../../shared/store/redis/redis.ts'
import type { End } from '../checker/history.ts'

const RECORD_TTL_MS = 60_000

type Found = Pick<End, 'records' | 'unreadable'>

/** What the store holds of each room, as a new owner would find it. Every node must be gone. */
export async function audit(
  redisUrl: string,
  keyPrefix: string,
  projectId: string,
  rooms: readonly string[],
): Promise<Found> {
  const store = await redisStore({ url: redisUrl, keyPrefix, log: pino({ level: 'silent' }) })
  const format = new JournalFormat()
  const read = async (room: string): Promise<Found> => {
    const name = `${projectId}/${room}`
    const owner = await store.rooms.inspect(name)
    const claim = owner && (await store.rooms.claim(name, 'auditor', owner.epoch, RECORD_TTL_MS))
    if (!claim) return NOTHING
    try {
      const restored = restore(claim, format)
      if (!restored) return NOTHING
      const { seq, checksum, state } = restored
      return { records: [{ room, version: owner.version, seq, checksum, state }], unreadable: [] }
    } catch (error) {
      if (!(error instanceof UnreadableRecord)) throw error
      return { records: [], unreadable: [{ room, message: error.message }] }
    }
  }
  try {
    const found = await Promise.all(rooms.map(read))
    return {
      records: found.flatMap(({ records }) => records),
      unreadable: found.flatMap(({ unreadable }) => unreadable),
    }
  } finally {
    await store.close()
  }
}

const NOTHING: Found = { records: [], unreadable: [] }
