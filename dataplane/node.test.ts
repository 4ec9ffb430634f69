import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { pino } from 'pino'
import { expect, it, onTestFinished } from 'vitest'
import { leaseKey } from '../shared/node-registry.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { startNode } from './node.ts'

// Vitest fails a run with an unhandled rejection, as Node ends a process with one.
it('a node whose name another process has taken causes no unhandled rejection', async () => {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const said: string[] = []
  const log = pino({ level: 'error' }, { write: (line) => said.push(line) })
  const options = { rooms: [], store, clock, log, wsPort: 0, adminPort: 0, drainSeconds: 0 }
  const node = await startNode({ ...options, nodeId: 'one', controlUrl: 'http://127.0.0.1:1' })
  await store.records.write([{ remove: leaseKey('one') }])
  const another = { key: leaseKey('one'), holder: 'another', value: new Uint8Array(0), ttlMs: 60_000 }
  await store.records.renewLease(another)
  await expect.poll(() => clock.advance(100) ?? said.length).toBeGreaterThan(0)
  await new Promise(setImmediate)
  await expect(node.drained).rejects.toMatchObject({ name: 'NodeReplaced' })
  let closed = false
  void node.close().then(() => {
    closed = true
  })
  await expect.poll(() => clock.advance(100) ?? closed).toBe(true)
})

it('a node that cannot listen leaves nothing open: the next node of its name starts immediately', async () => {
  const taken = createServer().listen(0, '127.0.0.1')
  onTestFinished(() => void taken.close())
  await once(taken, 'listening')
  const { port } = taken.address() as AddressInfo
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const log = pino({ level: 'silent' })
  const options = { nodeId: 'one', rooms: [], store, clock, log, adminPort: 0, drainSeconds: 0 }
  await expect(startNode({ ...options, wsHost: '127.0.0.1', wsPort: port })).rejects.toMatchObject({
    code: 'EADDRINUSE',
  })
  expect(await store.records.read([leaseKey('one')])).toEqual([undefined])
  const node = await startNode({ ...options, wsPort: 0 })
  await node.close()
})

it('a node reports by log and metric that its store has lost its data', async () => {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const said: string[] = []
  const log = pino({ level: 'error' }, { write: (line) => said.push(JSON.parse(line).msg) })
  const node = await startNode({ rooms: [], store, clock, log, wsPort: 0, adminPort: 0, drainSeconds: 0 })
  onTestFinished(() => node.close())
  await expect.poll(() => store.records.read(['{nodes}:data'])).not.toEqual([undefined])
  expect(await node.registry.metrics()).toContain('service_store_data_lost 0')
  await store.records.write([{ remove: '{nodes}:data' }])
  clock.advance(10_000)
  await expect.poll(() => node.registry.metrics()).toContain('service_store_data_lost 1')
  expect(said).toEqual(['the store lost its data'])
})
