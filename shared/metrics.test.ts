import { Registry } from 'prom-client'
import { expect, it } from 'vitest'
import { counter, gauge, histogram, OPEN, registerMetrics } from './metrics.ts'

it('counts, sets and observes what is declared, by the labels that are declared', async () => {
  const registry = new Registry()
  const metrics = registerMetrics(registry, {
    bytes: counter('bytes_total', 'Bytes.'),
    visits: counter('visits_total', 'Visits.', { room: OPEN, by: ['day', 'night'] }),
    level: gauge('level', 'Level.'),
    version: gauge('version_info', 'Version.', { version: OPEN }),
    age: gauge('age', 'Age.'),
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
  metrics.wait.observe(0.02)
  metrics.waitByRoom.observe({ room: 'hall' }, 0.5)
  const text = await registry.metrics()
  for (const line of [
    'bytes_total 8',
    'visits_total{room="hall",by="night"} 3',
    'level 4',
    'version_info{version="1.2"} 1',
    'age 2',
    'wait_seconds_bucket{le="0.025"} 1',
    'room_wait_seconds_bucket{le="1",room="hall"} 1',
  ])
    expect(text).toContain(line)
})
