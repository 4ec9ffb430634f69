import { pino } from 'pino'
import { afterAll, beforeAll, describe, expect, vi } from 'vitest'
import { type RedisCluster, startRedisCluster } from '../../../test/support/redis-cluster.ts'
import { randomToken } from '../../ids.ts'
import { systemRandom } from '../../random.ts'
import { describeStore } from '../conformance.ts'
import { redisStore } from './redis.ts'

const silent = pino({ level: 'silent' })

describe('on a Cluster of three masters', () => {
  let cluster: RedisCluster
  beforeAll(async () => {
    cluster = await startRedisCluster()
  })
  afterAll(() => cluster.close())

  describeStore('the Redis store', async () => ({
    store: await redisStore({
      url: cluster.url,
      key_prefix: `${randomToken(systemRandom, 8)}:`,
      log: silent,
    }),
    elapse: async (_ttl_ms, seen) => {
      await vi.waitFor(async () => expect(await seen()).toBe(true), { interval: 5, timeout: 5000 })
    },
  }))
})
