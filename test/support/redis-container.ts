import type { ContainerRuntimeClient, StartedTestContainer } from 'testcontainers'
import { freePort, redisAnswers } from './redis-port.ts'
import type { RedisServer } from './redis-server.ts'

const IMAGE = 'redis:7-alpine'
const PORT = 6379
const START_TIMEOUT_MS = 30_000

/** Starts a Redis in a container of its own, or gives undefined where no Docker engine answers. */
export async function startRedisContainer(): Promise<RedisServer | undefined> {
  const { GenericContainer, getContainerRuntimeClient } = await import('testcontainers')
  let engine: ContainerRuntimeClient
  try {
    engine = await getContainerRuntimeClient()
  } catch {
    return undefined
  }
  const hostPort = await freePort()
  const container = await new GenericContainer(IMAGE)
    .withExposedPorts({ container: PORT, host: hostPort })
    .withCommand(['redis-server', '--save', '', '--appendonly', 'no', '--maxmemory-policy', 'noeviction'])
    .start()
  return new RedisContainer(engine, container)
}

class RedisContainer implements RedisServer {
  readonly url: string
  readonly #container: StartedTestContainer
  readonly #handle: ReturnType<ContainerRuntimeClient['container']['getById']>

  constructor(engine: ContainerRuntimeClient, container: StartedTestContainer) {
    this.#container = container
    this.#handle = engine.container.getById(container.getId())
    this.url = `redis://${container.getHost()}:${container.getMappedPort(PORT)}`
  }

  async start(): Promise<void> {
    await this.#handle.start()
    await redisAnswers(this.url, START_TIMEOUT_MS)
  }

  async stop(): Promise<void> {
    await this.#handle.kill()
    await this.#handle.wait()
  }

  async restart(): Promise<void> {
    await this.stop()
    await this.start()
  }

  async pause(): Promise<void> {
    await this.#handle.pause()
  }

  async resume(): Promise<void> {
    await this.#handle.unpause()
  }

  async close(): Promise<void> {
    await this.#container.stop()
  }
}
