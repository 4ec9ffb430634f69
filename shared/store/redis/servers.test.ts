import { expect, it, onTestFinished, vi } from 'vitest'
import { hasShards, Outage, requireRecent } from './servers.ts'

const info = (version: string) =>
  `# Server\r\nredis_version:${version}\r\nredis_mode:standalone\r\n# Memory\r\nmaxmemory:0\r\n`

it.each(['6.2.0', '6.10.1', '7.0.15', '10.0.0'])('accepts Redis %s', (version) => {
  expect(() => requireRecent(info(version))).not.toThrow()
})

it.each(['2.8.0', '5.9.9', '6.0.16'])('refuses Redis %s, and names the required version', (version) => {
  expect(() => requireRecent(info(version))).toThrow(`the store is Redis ${version}: it must be 6.2 or newer`)
})

it.each([
  ['6.2.0', false],
  ['7.0.0', true],
  ['10.1.0', true],
])('knows whether Redis %s publishes within a shard: %s', (version, publishes) => {
  expect(hasShards(info(version))).toBe(publishes)
})

it('refuses a server that does not report its version', () => {
  expect(() => requireRecent('# Server\r\n')).toThrow('Redis of an unknown version')
})

it('an outage ends for every callback, also if one of them throws', () => {
  const later = vi.spyOn(globalThis, 'queueMicrotask').mockImplementation(() => {})
  onTestFinished(() => later.mockRestore())
  const outage = new Outage()
  const seen: boolean[] = []
  outage.onEnd(() => {
    throw new Error('a mistake')
  })
  outage.onEnd(() => seen.push(outage.lasts))
  outage.begin()
  outage.end()
  expect([seen, outage.lasts]).toEqual([[true], false])
  expect(later.mock.calls[0]![0]).toThrow('a mistake')
})
