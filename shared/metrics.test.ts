import fs from 'node:fs'
import { open } from 'node:fs/promises'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { expect, it, onTestFinished, vi } from 'vitest'
import { counter, gauge, histogram, OPEN, processMetrics, registerMetrics } from './metrics.ts'

it('counts, sets and observes the declared metrics by their labels', async () => {
  const registry = new Registry()
  const metrics = registerMetrics(registry, {
    bytes: counter('bytes_total', 'Bytes.'),
    visits: counter('visits_total', 'Visits.', { room: OPEN, by: ['day', 'night'] }),
    level: gauge('level', 'Level.'),
    version: gauge('version_info', 'Version.', { version: OPEN }),
    age: gauge('age', 'Age.'),
    seats: gauge('seats', 'Seats.', { room: OPEN }),
    wait: histogram('wait_seconds', 'Wait.'),
    waitByRoom: histogram('room_wait_seconds', 'Wait.', { room: OPEN }, [1]),
  })
  metrics.bytes.inc(7)
  metrics.bytes.inc()
  metrics.visits.inc({ room: 'hall', by: 'night' })
  metrics.visits.inc({ room: 'hall', by: 'night' }, 2)
  metrics.level.set(4)
  metrics.version.set({ version: '1.2' }, 1)
  let age = 1
  metrics.age.read(() => age)
  age = 2
  let seats = [[{ room: 'attic' }, 9]] as [{ room: string }, number][]
  metrics.seats.read(() => seats)
  await registry.metrics()
  seats = [[{ room: 'hall' }, 3]]
  metrics.wait.observe(0.02)
  metrics.waitByRoom.observe({ room: 'hall' }, 0.5)
  const text = await registry.metrics()
  for (const line of [
    'bytes_total 8',
    'visits_total{room="hall",by="night"} 3',
    'level 4',
    'version_info{version="1.2"} 1',
    'age 2',
    'seats{room="hall"} 3',
    'wait_seconds_bucket{le="0.025"} 1',
    'room_wait_seconds_bucket{le="1",room="hall"} 1',
  ])
    expect(text).toContain(line)
  expect(text).not.toContain('attic')
})

it('exports every duration, however many there are between two scrapes', async () => {
  const registry = new Registry()
  const { wait } = registerMetrics(registry, { wait: histogram('wait_seconds', 'Wait.') })
  for (const [times, count] of [
    [1000, 1000],
    [3, 1003],
    [0, 1003],
  ] as const) {
    for (let n = 0; n < times; n++) wait.observe(n % 2 === 0 ? 0.02 : 0.2)
    expect(await registry.metrics()).toContain(`wait_seconds_count ${count}`)
  }
  expect(await registry.metrics()).toContain('wait_seconds_bucket{le="0.025"} 502')
})

function scraped(): () => Promise<string> {
  const registry = new Registry()
  processMetrics(registry, pino({ level: 'silent' }))
  return () => registry.metrics()
}

const openFiles = (text: string): number => Number(/^service_process_open_fds (\d+)$/m.exec(text)?.[1])

it('reports the number of open files', async () => {
  const scrape = scraped()
  const before = openFiles(await scrape())
  const files = await Promise.all(Array.from({ length: 500 }, () => open('/dev/null')))
  onTestFinished(async () => void (await Promise.all(files.map((file) => file.close()))))
  const more = openFiles(await scrape()) - before
  // Sockets of earlier tests in this process may close during the test.
  expect(more).toBeGreaterThan(400)
  expect(more).toBeLessThan(600)
})

it('reads no sockets and lists no files in the event loop, because the time of a scrape must not grow with the number of clients', async () => {
  const scrape = scraped()
  const looks = [vi.spyOn(fs, 'readdirSync'), vi.spyOn(process, 'getActiveResourcesInfo')]
  onTestFinished(() => looks.forEach((look) => void look.mockRestore()))
  const text = await scrape()
  for (const look of looks) expect(look).not.toHaveBeenCalled()
  expect(text).not.toContain('nodejs_active_')
  expect(text).toContain('service_process_resident_memory_bytes ')
})

it('keeps no registry in memory whose node has closed', async () => {
  setFlagsFromString('--expose-gc')
  const collectGarbage: () => void = runInNewContext('gc')
  const registry = new WeakRef(new Registry())
  processMetrics(registry.deref()!, pino({ level: 'silent' }))
  await nextTurn()
  collectGarbage()
  expect(registry.deref()).toBeUndefined()
})
