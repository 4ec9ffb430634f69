import { join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { type RedisServer, redisAnswers, startRedis } from './redis-server.ts'
import { openRunFolder } from './run-folder.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A Redis shared by all tests of the run, not in the unit tier: use a key prefix of your own, and never flush or stop it. */
    redisUrl: string
  }
}

const ANSWER_WITHIN_MS = 10_000

/**
 * Gives every test but those of the unit tier a real Redis under `inject('redisUrl')`: the one at REDIS_URL, or one of this run's own. All
 * that tests put into the folder for temporary files goes at the end, and so do the processes they have started, whatever became of the tests.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // Tests belong to projects; the root that carries them has none.
  if (project.isRootProject()) return async () => {}
  const folder = await openRunFolder()
  // Workers and what they start are born with it.
  process.env.TMPDIR = folder.path
  // From Node 22.1 on, a process of the run starts in half the time with code that an earlier one has compiled.
  process.env.NODE_COMPILE_CACHE = join(folder.path, 'compiled')
  const server = project.name === 'unit' ? undefined : await provideRedis(project)
  return async () => {
    await server?.close()
    const left = await folder.close()
    if (left.length > 0) process.stderr.write(`ended what tests had left running:\n  ${left.join('\n  ')}\n`)
  }
}

/** The server that this run has started, if none was given. */
async function provideRedis(project: TestProject): Promise<RedisServer | undefined> {
  const given = process.env.REDIS_URL
  if (given) await redisAnswers(given, ANSWER_WITHIN_MS)
  const server = given ? undefined : await startRedis()
  project.provide('redisUrl', given ?? server!.url)
  return server
}
