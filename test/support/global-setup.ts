import type { TestProject } from 'vitest/node'
import { redisAnswers } from './redis-port.ts'
import { startRedis } from './redis-server.ts'
import { openRunFolder } from './run-folder.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A Redis shared by all tests of the run: use a key prefix of your own, and never flush or stop it. */
    redisUrl: string
  }
}

const ANSWER_WITHIN_MS = 10_000

/**
 * Gives every test a real Redis under `inject('redisUrl')`: the one at REDIS_URL, or one of this run's own. All that tests put into the
 * folder for temporary files goes at the end, and so do the processes they have started, whatever became of the tests.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await openRunFolder()
  // Workers and what they start are born with it.
  process.env.TMPDIR = folder.path
  const close = async () => {
    const left = await folder.close()
    if (left.length > 0) process.stderr.write(`ended what tests had left running:\n  ${left.join('\n  ')}\n`)
  }
  const given = process.env.REDIS_URL
  if (given) {
    await redisAnswers(given, ANSWER_WITHIN_MS)
    project.provide('redisUrl', given)
    return close
  }
  const server = await startRedis()
  project.provide('redisUrl', server.url)
  return async () => {
    await server.close()
    await close()
  }
}
