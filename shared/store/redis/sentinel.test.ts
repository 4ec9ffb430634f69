import { pino } from 'pino'
import { afterAll, beforeAll, describe, expect, vi } from 'vitest'
import { type RedisSentinel, startRedisSentinel } from '../../../test/support/redis-sentinel.ts'
import { randomToken } from '../../ids.ts'
import { systemRandom } from '../../random.ts'
import { describeStore } from '../conformance.ts'
import { redisStore } from './redis.ts'

const silent = pino({ level: 'silent' })

describe('behind three Sentinels', () => {
  let set: RedisSentinel
  beforeAll(async () => {
    set = await startRedisSentinel()
  })
  afterAll(() => set.close())

  describeStore('the Redis store', async () => ({
    store: await redisStore({
      url: set.url,
      key_prefix: `${randomToken(systemRandom, 8)}:`,
      log: silent,
    }),
    elapse: async (_ttl_ms, seen) => {
      await vi.waitFor(async () => expect(await seen()).toBe(true), { interval: 5, timeout: 5000 })
    },
  }))
})
