import { expect, it, onTestFinished, vi } from 'vitest'
import { freshPrefix } from '../../../test/support/redis-prefix.ts'
import { startRedisWith } from '../../../test/support/redis-server.ts'
import { openRedisStore } from '../../../test/support/redis-store.ts'
import { bytes, LONG_MS } from '../conformance/harness.ts'
import { type StoreObserver, StoreUnavailable } from '../port.ts'
import { figuresOf } from './vitals.ts'

/** Writes down what it hears. */
function recorder(): StoreObserver & { readonly heard: string[] } {
  const heard: string[] = []
  const hear = (how: string) => (operation: string, seconds: number) => {
    expect(seconds).toBeGreaterThan(0)
    heard.push(`${operation} ${how}`)
  }
  return { heard, answered: hear('answered'), failed: hear('failed') }
}

it('tells of every command, whether it was answered or not, until nobody wants to hear it', async () => {
  const server = await startRedisWith({})
  onTestFinished(() => server.close())
  const store = await openRedisStore({
    url: server.url,
    key_prefix: freshPrefix(),
    command_timeout_ms: 300,
  })
  const observer = recorder()
  const end = store.vitals.observe(observer)
  const asked = () => observer.heard.filter((one) => one.startsWith('read'))
  await store.records.read(['a', 'b'])
  expect(asked()).toEqual(['read answered', 'read answered'])
  expect(store.vitals.reachable).toBe(true)

  await server.stop()
  await expect(store.records.read(['a'])).rejects.toThrow(StoreUnavailable)
  expect(asked().slice(2)).toEqual(['read failed'])
  await vi.waitFor(() => expect(store.vitals.reachable).toBe(false), 60_000)

  await server.start()
  await vi.waitFor(() => expect(store.vitals.reachable).toBe(true), 60_000)
  end()
  await store.records.read(['a'])
  expect(asked()).toHaveLength(3)
})

it('tells how full a server is', async () => {
  const server = await startRedisWith({ settings: { maxmemory: '64mb' } })
  onTestFinished(() => server.close())
  const store = await openRedisStore({ url: server.url, key_prefix: freshPrefix() })
  const [before] = await store.vitals.servers()
  expect(before).toMatchObject({ max_memory_bytes: 64 * 1024 * 1024, evicted_keys: 0 })
  expect(before!.name).toBe(new URL(server.url).host)
  expect(before!.connected_clients).toBeGreaterThanOrEqual(2)

  await store.records.write([{ put: 'large', value: bytes('x'.repeat(5_000_000)), ttl_ms: LONG_MS }])
  const [after] = await store.vitals.servers()
  expect(after!.used_memory_bytes - before!.used_memory_bytes).toBeGreaterThan(4_900_000)
  expect(after!.commands_processed).toBeGreaterThan(before!.commands_processed)
})

it('takes for 0 what a server does not say', () => {
  expect(figuresOf('# Memory\r\nused_memory:123\r\nused_memory_human:1K\r\n')).toEqual({
    used_memory_bytes: 123,
    max_memory_bytes: 0,
    connected_clients: 0,
    commands_processed: 0,
    evicted_keys: 0,
  })
})
