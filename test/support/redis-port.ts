import { Redis } from 'ioredis'
import { freePort as claimPort } from '../../deploy/local/machine.ts'
import { systemRandom } from '../../shared/random.ts'

/** A port of this machine on which no process listens, and which no other test gets as long as this process runs. */
export const freePort = (): Promise<number> => claimPort(systemRandom)

/** Resolves once the Redis at `url` answers; rejects, with the last reason, when it does not within `timeoutMs`. */
export async function redisAnswers(url: string, timeoutMs: number): Promise<void> {
  const redis = new Redis(url, { retryStrategy: () => 50, maxRetriesPerRequest: null })
  let reason = 'no answer'
  redis.on('error', (error: NodeJS.ErrnoException) => {
    reason = error.message || error.code || error.name
  })
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () =>
        reject(
          new Error(`the Redis at ${new URL(url).host} did not answer within ${timeoutMs} ms: ${reason}`),
        ),
      timeoutMs,
    )
  })
  try {
    await Promise.race([redis.ping(), late])
  } finally {
    clearTimeout(timer)
    redis.disconnect()
  }
}
