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
  it('prints its version and its help', async () => {
    const [version, help] = [roomful(['--version']), roomful(['control', '--help', 'access'])]
    expect([await version.ended, version.output()]).toEqual([0, expect.stringMatching(/^\d+\.\d+\.\d+/)])
    expect(await help.ended).toBe(0)
    expect(help.output()).toContain('CONTROL_API_TOKENS')
  })

  it('exits with 2 for an unknown word', async () => {
    const { ended, output } = roomful(['contrl'])
    expect([await ended, output()]).toEqual([2, expect.stringContaining('Did you mean control?')])
  })

  it('exits with 2 and a message if Node is too old', async () => {
    const older =
      'Object.defineProperty(process, "versions", { value: { ...process.versions, node: "18.20.8" } })'
    const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(older)}`
    const { ended, output } = roomful(['dev'], { NODE_OPTIONS })
    expect([await ended, output()]).toEqual([
      2,
      expect.stringMatching(/Node 20\.19 or newer is required; this is 18\.20\.8/),
    ])
  })

  it('exits with 2 if its configuration is wrong, and lists all errors', async () => {
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
  it('serves when it prints its address, and exits with 0 after SIGTERM', async () => {
    const { child, ended, said, output } = control()
    const [, url] = await said(/ready: api (http:\/\/127\.0\.0\.1:\d+)/)
    expect((await fetch(`${url}/healthz`)).status).toBe(200)
    child.kill('SIGTERM')
    expect(await ended).toBe(0)
    for (const line of output().trim().split('\n')) expect(JSON.parse(line)).toHaveProperty('msg')
  })

  it('exits with 1 and a message if its port is in use', async () => {
    const other = createServer().listen(0, '127.0.0.1')
    await new Promise((resolve) => other.once('listening', resolve))
    const { port } = other.address() as { port: number }
    const { ended, output } = control({ CONTROL_PORT: String(port) })
    expect(await ended).toBe(1)
    expect(output()).toContain(
      `control cannot start: another process listens on 127.0.0.1:${port}: end that process, or set CONTROL_PORT to another port`,
    )
    expect(output()).not.toContain('stack')
    other.close()
  })
})

describe('roomful rekey', () => {
  const rekey = (env: Record<string, string>) =>
    roomful(['rekey'], { REDIS_URL: inject('redisUrl'), KEY_PREFIX: `rekey-${process.pid}:`, ...env })

  it('replaces a secret, so that control starts with the new one only', async () => {
    const served = async (secret: string): Promise<string> => {
      const { child, ended, said, output } = control({
        KEY_PREFIX: `rekey-${process.pid}:`,
        KEYRING_SECRET: secret,
      })
      const url = await Promise.race([said(/ready: api (http:\/\/[\d.:]+)/).then(([, url]) => url), ended])
      if (typeof url !== 'string') return output()
      const made = await fetch(`${url}/projects`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{"name":"games"}',
      })
      child.kill('SIGTERM')
      await ended
      return `served ${made.status}`
    }
    expect(await served('the first secret of all')).toBe('served 201')
    expect(await served('the second secret of all')).toContain('another KEYRING_SECRET')
    const done = rekey({ KEYRING_SECRET: 'the second secret of all,the first secret of all' })
    expect([await done.ended, done.output()]).toEqual([
      0,
      expect.stringMatching(/"resealed":1.*all private keys are sealed under the first KEYRING_SECRET/),
    ])
    expect(await served('the second secret of all')).toBe('served 201')
  })

  it('changes nothing without a secret or with a wrong one, and prints the reason', async () => {
    const none = rekey({})
    expect([await none.ended, none.output()]).toEqual([
      2,
      expect.stringContaining('KEYRING_SECRET is not set'),
    ])
    const wrong = rekey({ KEYRING_SECRET: 'neither of the two secrets' })
    expect([await wrong.ended, wrong.output()]).toEqual([
      1,
      expect.stringContaining('another KEYRING_SECRET'),
    ])
  })
})
