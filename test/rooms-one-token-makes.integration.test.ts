import { defineRoom } from 'roomful'
import { connect } from 'roomful/client'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { TestCluster } from './support/cluster.ts'
import { asAdmin } from './support/redis-admin.ts'

const booth = defineRoom({
  type: 'booth',
  durability: 'journal',
  idleSeconds: 0,
  create: () => ({ visits: 0 }),
})

let cluster: TestCluster
beforeAll(async () => {
  cluster = await TestCluster.start({ redis: 'memory' })
})
afterAll(() => cluster.close())

// Four sessions of one token made 5,451 rooms in half a minute, and two keys of each stayed in Redis for more than two hours.
it('one token makes so many rooms in a minute, at all nodes together, and they leave nothing behind', async () => {
  const nodes = await cluster.local(2, {
    rooms: [booth],
    joinsPerSecond: 1000,
    newRoomsPerMinute: 20,
  })
  const { projectId, token } = await cluster.login()
  const clients = await Promise.all(
    [0, 1, 2, 3].map((n) => connect(nodes[n % 2]!.wsUrl, { projectId, token })),
  )
  const answers = await Promise.all(
    clients.map(async (client, n) => {
      const seen: string[] = []
      for (let i = 0; i < 25; i++) {
        const answer = await client.join('booth', { key: `${n}-${i}` }).then(
          async (room) => {
            await room.leave()
            return 'made'
          },
          (error: { code: string; retryable: boolean }) => `${error.code} ${error.retryable}`,
        )
        seen.push(answer)
      }
      return seen
    }),
  )
  const made = answers.flat().filter((answer) => answer === 'made').length
  expect(new Set(answers.flat())).toEqual(new Set(['made', 'rate_limited true']))
  // The bucket fills by one in three seconds.
  expect(made).toBeGreaterThanOrEqual(20)
  expect(made).toBeLessThan(25)

  for (const client of clients) client.close()
  await cluster.reset()
  const lives = await asAdmin(cluster.redisUrl, async (redis) => {
    const keys = await redis.keys(`*{room:${projectId}/*`)
    return Promise.all(keys.map(async (key) => ({ key, ttl_ms: await redis.pttl(key) })))
  })
  expect(lives).toHaveLength(made)
  for (const { ttl_ms: ttlMs } of lives) expect(ttlMs).toBeLessThanOrEqual(120_000)
  expect(Math.min(...lives.map(({ ttl_ms: ttlMs }) => ttlMs))).toBeGreaterThan(0)
})
