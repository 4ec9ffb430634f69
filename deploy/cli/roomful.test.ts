import { createServer } from 'node:net'
import { describe, expect, inject, it } from 'vitest'
import { runProgram as roomful } from '../../test/support/program.ts'

const control = (env: Record<string, string> = {}) =>
  roomful(['control'], {
    REDIS_URL: inject('redisUrl'),
    KEY_PREFIX: `cli-${process.pid}:`,
    CONTROL_PORT: '0',
    ...env,
  })

describe('roomful', () => {
  it('tells its version and its help', async () => {
    const [version, help] = [roomful(['--version']), roomful(['control', '--help'])]
    expect([await version.ended, version.output()]).toEqual([0, expect.stringMatching(/^\d+\.\d+\.\d+/)])
    expect(await help.ended).toBe(0)
    expect(help.output()).toContain('CONTROL_API_TOKENS')
  })

  it('ends with 2 at a word it does not know', async () => {
    const { ended, output } = roomful(['contrl'])
    expect([await ended, output()]).toEqual([2, expect.stringContaining('contrl is no command')])
  })

  it('ends with 2 when its configuration is wrong, and lists everything', async () => {
    const { ended, output } = roomful(['control'], { CONTROL_PORT: 'x', LOG_LEVEL: 'loud', WS_PROT: '1' })
    expect(await ended).toBe(2)
    for (const part of [
      'CONTROL_PORT is "x"',
      'LOG_LEVEL is "loud"',
      'REDIS_URL is not set',
      'Did you mean WS_PORT?',
    ])
      expect(output()).toContain(part)
  })
})

describe('roomful control', () => {
  it('serves once it says so, and ends with 0 at SIGTERM', async () => {
    const { child, ended, said, output } = control()
    const [, url] = await said(/ready: api (http:\/\/127\.0\.0\.1:\d+)/)
    expect((await fetch(`${url}/healthz`)).status).toBe(200)
    child.kill('SIGTERM')
    expect(await ended).toBe(0)
    for (const line of output().trim().split('\n')) expect(JSON.parse(line)).toHaveProperty('msg')
  })

  it('ends with 1 when its port is taken, and says so', async () => {
    const other = createServer().listen(0, '127.0.0.1')
    await new Promise((resolve) => other.once('listening', resolve))
    const { port } = other.address() as { port: number }
    const { ended, output } = control({ CONTROL_PORT: String(port) })
    expect(await ended).toBe(1)
    expect(output()).toContain(`somebody else listens on 127.0.0.1:${port}`)
    other.close()
  })
})
