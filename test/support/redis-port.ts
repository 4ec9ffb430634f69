import { createServer } from 'node:net'
import { Redis } from 'ioredis'

/** A port no one listens on at this moment. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      const port = typeof address === 'object' && address ? address.port : 0
      server.close(() => resolve(port))
    })
  })
}

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
