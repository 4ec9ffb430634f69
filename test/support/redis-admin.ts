import { Redis } from 'ioredis'

/** Runs `work` with a connection to the Redis at `url` that is closed afterwards; a command waits at most 2 s. */
export async function asAdmin<T>(url: string, work: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url, { commandTimeout: 2000, retryStrategy: () => 50, maxRetriesPerRequest: 3 })
  redis.on('error', () => undefined)
  try {
    return await work(redis)
  } finally {
    redis.disconnect()
  }
}

/** Resolves once `holds` gives true; asks every 20 ms, also when it rejects, and rejects with `what` after `timeoutMs`. */
export async function until(what: string, holds: () => Promise<boolean>, timeoutMs = 60_000): Promise<void> {
  const end = performance.now() + timeoutMs
  let reason = ''
  while (performance.now() < end) {
    try {
      if (await holds()) return
    } catch (error) {
      reason = `: ${(error as Error).message}`
    }
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  throw new Error(`${what} did not happen within ${timeoutMs} ms${reason}`)
}
