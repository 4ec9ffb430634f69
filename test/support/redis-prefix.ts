import { Redis } from 'ioredis'
import { inject, onTestFinished } from 'vitest'
import { randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'

/** A key prefix nobody else uses on the shared Redis; what was stored under it is removed when the test has ended. */
export function freshPrefix(): string {
  const prefix = `test-${randomToken(systemRandom, 12)}:`
  onTestFinished(() => removeKeys(inject('redisUrl'), prefix))
  return prefix
}

async function removeKeys(url: string, prefix: string): Promise<void> {
  const redis = new Redis(url)
  try {
    for await (const keys of redis.scanStream({ match: `${prefix}*`, count: 1000 })) {
      if (keys.length > 0) await redis.unlink(...(keys as string[]))
    }
  } finally {
    redis.disconnect()
  }
}
