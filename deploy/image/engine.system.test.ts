import { fileURLToPath } from 'node:url'
import { connect } from 'roomful/client'
import {
  GenericContainer,
  getContainerRuntimeClient,
  Network,
  type StartedNetwork,
  type StartedTestContainer,
  Wait,
} from 'testcontainers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { loginAt } from '../../test/support/calls.ts'
import { readCompose } from '../../test/support/compose.ts'
import { readImage } from '../../test/support/image/container.ts'

/** The image, built and run by an engine. Without an engine, image.system.test.ts does the same by hand. */

const root = fileURLToPath(new URL('../..', import.meta.url))
const { final } = readImage()
const redis = readCompose(new URL('../compose.yaml', import.meta.url)).services.redis!
/** A name of this run, so that an image of an earlier run cannot replace a failed build. */
const NAME = `roomful-test:${crypto.randomUUID()}`
const SECRETS = {
  INTERNAL_TOKEN: 'internal-token-of-the-engine',
  CONTROL_API_TOKENS: 'operator-token-of-the-engine',
  KEYRING_SECRET: 'keyring-secret-of-the-engine',
}

const engine = await getContainerRuntimeClient().catch(() => undefined)
if (engine === undefined)
  process.stderr.write('skipped: no Docker engine, so the image is not built and run by one\n')

describe.skipIf(engine === undefined)('the image, run by an engine', () => {
  const running: StartedTestContainer[] = []
  let network: StartedNetwork
  let image: GenericContainer
  let control: StartedTestContainer
  let node: StartedTestContainer

  const started = async (container: GenericContainer) => {
    const one = await container.withNetwork(network).start()
    running.push(one)
    return one
  }
  const plane = (command: string, env: Record<string, string>) =>
    started(
      image
        .withCommand([command])
        .withEnvironment({ REDIS_URL: 'redis://redis:6379', ...SECRETS, ...env })
        .withTmpFs({ '/tmp': 'rw,size=64m' })
        .withDroppedCapabilities('ALL')
        // All ports, because testcontainers waits for every port that Podman publishes.
        .withExposedPorts(...final.exposed)
        .withNetworkAliases(command)
        // The engine reports it after HEALTHCHECK has passed.
        .withWaitStrategy(Wait.forHealthCheck()),
    )

  const login = () =>
    loginAt(
      `http://${control.getHost()}:${control.getMappedPort(3000)}`,
      {},
      { authorization: `Bearer ${SECRETS.CONTROL_API_TOKENS}` },
    )

  beforeAll(async () => {
    network = await new Network().start()
    // Not with BuildKit, which Podman does not have: a build that it refuses would never end.
    image = await GenericContainer.fromDockerfile(root, 'deploy/image/Dockerfile').build(NAME, {
      deleteOnExit: false,
    })
    await started(
      new GenericContainer(redis.image)
        .withCommand(['redis-server', '--maxmemory-policy', 'noeviction'])
        .withExposedPorts(6379)
        .withNetworkAliases('redis'),
    )
    control = await plane('control', {})
    node = await plane('dataplane', { CONTROL_URL: 'http://control:3000', DRAIN_SECONDS: '1' })
  }, 600_000)

  afterAll(async () => {
    for (const one of running.reverse()) await one.stop()
    await network?.stop()
    if (image !== undefined) await engine!.container.dockerode.getImage(NAME).remove()
  })

  it('has all settings of the Dockerfile, also the health check', async () => {
    const { Config: config } = await engine!.container.dockerode.getImage(NAME).inspect()
    expect(config).toMatchObject({
      User: final.user,
      Entrypoint: final.entrypoint,
      Cmd: final.cmd,
      WorkingDir: final.workdir,
      Labels: final.labels,
    })
    expect(Object.keys(config.ExposedPorts ?? {}).sort()).toEqual(final.exposed.map((port) => `${port}/tcp`))
    expect(config.Env).toEqual(
      expect.arrayContaining(Object.entries(final.env).map((pair) => pair.join('='))),
    )
    // Read from the container: Podman does not report the health check of an image here.
    const { Config: started } = await engine!.container.getById(control.getId()).inspect()
    expect(started.Healthcheck).toMatchObject({
      Test: ['CMD', ...final.healthcheck!.words],
      Interval: 1e9 * Number.parseInt(final.healthcheck!.options.interval!, 10),
    })
  })

  it('serves a game, and runs as any user', async () => {
    const { projectId, token } = await login()
    const client = await connect(`ws://${node.getHost()}:${node.getMappedPort(4000)}`, { projectId, token })
    const room = await client.join('counter', { key: 'engine' })
    await room.send('inc', { by: 3 })
    expect(room.state).toEqual({ count: 3 })
    client.close()
    for (const one of [control, node]) {
      expect((await one.exec(['id', '-u'])).output.trim()).toBe('10001')
      expect((await one.exec(['touch', '/app/x'])).exitCode).not.toBe(0)
    }
  })

  it.each([
    [{}, 'REDIS_URL is not set'],
    [{ REDIS_URL: 'redis://redis', CONTROL_PORT: 'abc' }, 'CONTROL_PORT is "abc"'],
    [{ REDIS_URL: 'redis://redis' }, 'CONTROL_API_TOKENS'],
  ])('exits with 2 and a reason for %j', async (env, message) => {
    const container = await engine!.container.create({
      Image: NAME,
      Cmd: ['control'],
      Env: Object.entries(env).map((pair) => pair.join('=')),
    })
    try {
      await container.start()
      expect((await container.wait()).StatusCode).toBe(2)
      expect((await container.logs({ stdout: true, stderr: true })).toString()).toContain(message)
    } finally {
      await container.remove({ force: true })
    }
  })

  it('exits with 0 after the signal of docker stop, in time although a player is connected', async () => {
    const { projectId, token } = await login()
    const client = await connect(`ws://${node.getHost()}:${node.getMappedPort(4000)}`, { projectId, token })
    const room = await client.join('counter', { key: 'stop' })
    await room.send('inc', { by: 1 })
    for (const one of [node, control]) {
      const handle = engine!.container.getById(one.getId())
      await handle.stop({ t: 30 })
      expect((await handle.inspect()).State.ExitCode).toBe(0)
    }
    client.close()
  })
})
