import { join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { compileRooms } from './compiled-rooms.ts'
import { type RedisServer, redisAnswers, startRedis } from './redis-server.ts'
import { openRunFolder } from './run-folder.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A Redis that all tests of the run share, except in the unit tier. Use a random key prefix, and do not flush or stop it. */
    redisUrl: string
    /** Folder with the room types of `cluster-rooms`, for nodes that are processes. Not in the unit tier. */
    clusterRooms: string
  }
}

const ANSWER_WITHIN_MS = 180_000

/**
 * Provides a real Redis as `inject('redisUrl')` to all tiers except unit tests: the Redis at REDIS_URL, or one that this run starts. And
 * `inject('clusterRooms')`. At the end of the run, removes the temporary files and ends the processes of all tests, also of failed ones.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // The root project has no tests.
  if (project.isRootProject()) return async () => {}
  const folder = await openRunFolder()
  // Workers and the processes that they start inherit it.
  process.env.TMPDIR = folder.path
  // From Node 22.1, a process starts in half the time with code that an earlier process has compiled.
  process.env.NODE_COMPILE_CACHE = join(folder.path, 'compiled')
  const isUnit = project.name === 'unit'
  const server = isUnit ? undefined : await provideRedis(project)
  if (!isUnit) project.provide('clusterRooms', await compileRooms(folder.path))
  return async () => {
    await server?.close()
    const left = await folder.close()
    if (left.length > 0) process.stderr.write(`ended what tests had left running:\n  ${left.join('\n  ')}\n`)
  }
}

/** Provides the Redis at REDIS_URL, or starts a server. Returns the started server. */
async function provideRedis(project: TestProject): Promise<RedisServer | undefined> {
  const given = process.env.REDIS_URL
  if (given) await redisAnswers(given, ANSWER_WITHIN_MS)
  const server = given ? undefined : await startRedis()
  project.provide('redisUrl', given ?? server!.url)
  return server
}
