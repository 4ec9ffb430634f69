import { Redis } from 'ioredis'
import { PortBlock } from '../../deploy/local/ports.ts'
import { systemRandom } from '../../shared/random.ts'

/** Where no cluster takes its ports, below those that the system gives to connections that go out. */
const PORTS = { from: 10_000, below: 12_000, size: 2 }

/** A port of this machine on which no one listens, and which no other test gets as long as this process runs. */
export async function freePort(): Promise<number> {
  for (;;) {
    const block = await PortBlock.claim(systemRandom, PORTS)
    const port = await block.take().catch(() => undefined)
    if (port !== undefined) return port
  }
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
