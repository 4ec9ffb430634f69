import type { TestProject } from 'vitest/node'
import { redisAnswers } from './redis-port.ts'
import { startRedis } from './redis-server.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A Redis shared by all tests of the run: use a key prefix of your own, and never flush or stop it. */
    redisUrl: string
  }
}

const ANSWER_WITHIN_MS = 10_000

/** Gives every test a real Redis under `inject('redisUrl')`: the one at REDIS_URL, or one of this run's own. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const given = process.env.REDIS_URL
  if (given) {
    await redisAnswers(given, ANSWER_WITHIN_MS)
    project.provide('redisUrl', given)
    return async () => undefined
  }
  const server = await startRedis()
  project.provide('redisUrl', server.url)
  return () => server.close()
}
