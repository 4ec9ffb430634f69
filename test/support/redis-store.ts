import { Writable } from 'node:stream'
import { Redis } from 'ioredis'
import { type Logger, pino } from 'pino'
import { expect, inject, onTestFinished, vi } from 'vitest'
import { randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import { type Store, StoreUnavailable } from '../../shared/store/port.ts'
import { type RedisStoreOptions, redisStore } from '../../shared/store/redis/redis.ts'
import type { StoreUnderTest } from '../../shared/store/testing/conformance.ts'

export const silent = pino({ level: 'silent' })

/** Opens a store without logs. The end of the test closes it. */
export async function openRedisStore(options: Partial<RedisStoreOptions> & { url: string }): Promise<Store> {
  const store = await redisStore({ log: silent, ...options })
  onTestFinished(() => store.close())
  return store
}

/** A store for the conformance suite of stores, in which lifetimes pass in real time. */
export async function storeUnderTest(options: { url: string; keyPrefix: string }): Promise<StoreUnderTest> {
  return {
    store: await redisStore({ log: silent, ...options }),
    elapse: async (_ttlMs, seen) => {
      await vi.waitFor(async () => expect(await seen()).toBe(true), { interval: 5, timeout: 5000 })
    },
  }
}

/** Calls `work` until it resolves, at most for 15 s. Any rejection other than `StoreUnavailable` fails the test. */
export async function whenBack<T>(work: () => Promise<T>): Promise<T> {
  const until = performance.now() + 15_000
  for (;;) {
    try {
      return await work()
    } catch (error) {
      expect(error).toBeInstanceOf(StoreUnavailable)
      if (performance.now() > until) throw error
    }
  }
}

/** Expects that `call` rejects with `StoreUnavailable`. */
export const expectUnavailable = (call: Promise<unknown>): Promise<void> =>
  expect(call).rejects.toBeInstanceOf(StoreUnavailable)

/** Subscribes to `channel`. Returns the received messages as text, and the number of reported gaps. */
export async function listening(store: Store, channel: string): Promise<{ heard: string[]; gaps: number }> {
  const received: { heard: string[]; gaps: number } = { heard: [], gaps: 0 }
  const receive = (message: Uint8Array) => void received.heard.push(new TextDecoder().decode(message))
  await store.bus.subscribe(channel, receive, () => received.gaps++)
  return received
}

/** A logger, with a function that returns its lines. */
export function recordingLog(): { log: Logger; logged: () => string } {
  let written = ''
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      written += chunk.toString()
      done()
    },
  })
  return { log: pino({ level: 'debug' }, sink), logged: () => written }
}

/** Returns a random key prefix for the shared Redis. The end of the test removes the keys with this prefix. */
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
