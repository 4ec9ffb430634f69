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

/** The image as an engine builds and runs it. Where none answers, image.test.ts does the same by hand. */

const root = fileURLToPath(new URL('../..', import.meta.url))
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
  const plane = (command: string, env: Record<string, string>, ports: number[]) =>
    started(
      image
        .withCommand([command])
        .withEnvironment({ REDIS_URL: 'redis://redis:6379', ...SECRETS, ...env })
        .withTmpFs({ '/tmp': 'rw,size=64m' })
        .withExposedPorts(...ports)
        .withNetworkAliases(command)
        // Docker says so when HEALTHCHECK has passed.
        .withWaitStrategy(Wait.forHealthCheck()),
    )

  beforeAll(async () => {
    network = await new Network().start()
    image = await GenericContainer.fromDockerfile(root, 'deploy/image/Dockerfile')
      .withBuildkit()
      .build('roomful:test', { deleteOnExit: false })
    await started(
      new GenericContainer('redis:7-alpine')
        .withCommand(['redis-server', '--maxmemory-policy', 'noeviction'])
        .withNetworkAliases('redis'),
    )
    control = await plane('control', {}, [3000])
    node = await plane('dataplane', { CONTROL_URL: 'http://control:3000', DRAIN_SECONDS: '1' }, [4000, 9100])
  }, 600_000)

  afterAll(async () => {
    for (const one of running.reverse()) await one.stop()
    await network?.stop()
  }, 60_000)

  it('plays, and runs as nobody in particular', async () => {
    const post = async (path: string, body: object) => {
      const response = await fetch(`http://${control.getHost()}:${control.getMappedPort(3000)}${path}`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          authorization: `Bearer ${SECRETS.CONTROL_API_TOKENS}`,
        },
        body: JSON.stringify(body),
      })
      return (await response.json()) as { id: string; token: string }
    }
    const { id: projectId } = await post('/projects', { name: 'engine' })
    const { token } = await post('/tokens', { project_id: projectId })
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

  it('ends with 0 at the signal of docker stop', async () => {
    for (const one of [node, control]) {
      const handle = engine!.container.getById(one.getId())
      await handle.stop({ t: 30 })
      expect((await handle.inspect()).State.ExitCode).toBe(0)
    }
  })
})
