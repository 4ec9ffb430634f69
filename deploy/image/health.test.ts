import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { healthUrl, planeOf } from './health.ts'

const noFile = (path: string): string => {
  throw new Error(`${path} is not there`)
}

describe('the plane of a container', () => {
  it.each([
    [['node', '/app/dist/deploy/cli/roomful.js', 'dataplane', ''], 'dataplane'],
    [['/sbin/docker-init', '--', 'node', '/app/dist/deploy/cli/roomful.js', 'control'], 'control'],
  ])('is that of its first process: %j', (words, plane) => {
    expect(planeOf(words)).toBe(plane)
  })

  it('is undefined if another program runs', () => {
    expect(() => planeOf(['sleep', 'infinity'])).toThrow(
      '"sleep infinity" runs neither control nor dataplane',
    )
  })
})

it('the check fails without an answer, also through a symbolic link', () => {
  const folder = mkdtempSync(join(tmpdir(), 'roomful-health-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  symlinkSync(import.meta.dirname, join(folder, 'image'))
  const { status, stderr } = spawnSync(
    process.execPath,
    ['--import', 'tsx', join(folder, 'image/health.ts'), 'control'],
    { env: { PATH: process.env.PATH, CONTROL_PORT: '1' }, encoding: 'utf8' },
  )
  expect([status, stderr]).toEqual([1, expect.stringContaining('unhealthy: ')])
})

describe('the address of a plane’s health check', () => {
  it.each([
    ['control', {}, 'http://127.0.0.1:3000/healthz'],
    ['control', { CONTROL_HOST: '0.0.0.0', CONTROL_PORT: '8000' }, 'http://127.0.0.1:8000/healthz'],
    ['dataplane', { ADMIN_HOST: '::', WS_PORT: '1' }, 'http://[::1]:9100/healthz'],
    ['dataplane', { ADMIN_HOST: 'fd00::1', ADMIN_PORT: '9000' }, 'http://[fd00::1]:9000/healthz'],
    ['dataplane', { ADMIN_HOST: '10.0.0.1' }, 'http://10.0.0.1:9100/healthz'],
  ] as const)('%s with %j: %s', (plane, env, url) => {
    expect(healthUrl(plane, env, noFile)).toBe(url)
  })

  it('is found if the port comes from a file', () => {
    expect(healthUrl('control', { CONTROL_PORT_FILE: '/run/port' }, () => '3100')).toBe(
      'http://127.0.0.1:3100/healthz',
    )
  })
})
