import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { type RunningControl, startControl } from '../control/main.ts'
import { systemClock } from '../shared/clock.ts'
import { systemRandom } from '../shared/random.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import { openTracing } from '../shared/tracing/open.ts'
import type { Tracing } from '../shared/tracing/tracer.ts'
import { FakeClock } from './kit/fake-clock.ts'
import { callControl } from './support/calls.ts'
import { until } from './support/redis-admin.ts'
import { freePort } from './support/redis-port.ts'
import { recordingLog } from './support/redis-store.ts'
import { TraceCollector } from './support/trace-collector.ts'

/** Everything goes faster than it would by default; the minutes of the log are those of a clock of its own. */
const HASTY = {
  OTEL_EXPORTER_OTLP_TIMEOUT: '50',
  OTEL_BSP_SCHEDULE_DELAY: '5',
  OTEL_BSP_EXPORT_TIMEOUT: '1000',
  OTEL_BSP_MAX_QUEUE_SIZE: '100',
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '20',
}
const config = { serviceName: 'roomful-test', headers: [] }

const stub = (environment: Readonly<Record<string, string>>): void => {
  for (const [name, value] of Object.entries(environment)) vi.stubEnv(name, value)
}
afterEach(() => void vi.unstubAllEnvs())

describe('a collector that does not take traces', () => {
  let port: number
  let collector: TraceCollector
  let clock: FakeClock
  let tracing: Tracing
  let logged: () => string
  let control: RunningControl
  let projectId: string

  beforeEach(async () => {
    port = await freePort()
    collector = await TraceCollector.start(port)
    clock = new FakeClock()
    const recording = recordingLog()
    logged = recording.logged
    stub({ ...collector.environment, ...HASTY })
    tracing = await openTracing({
      config,
      instanceId: 'one',
      clock,
      log: recording.log,
    })
    control = await startControl({
      config: { controlPort: 0 },
      store: memoryStore({ clock: systemClock }),
      tracer: tracing.tracer,
      clock: systemClock,
      random: systemRandom,
      log: pino({ level: 'silent' }),
    })
    const project = await post('/projects', { name: 'traced' })
    projectId = project.id!
  })
  afterEach(async () => {
    await control.close()
    const closing = tracing.close()
    clock.advance(2000)
    await closing
    await collector.close()
  })

  const post = (path: string, body: object) => callControl(control.url, 'POST', path, body)

  const tokens = async (count: number): Promise<void> => {
    for (let i = 0; i < count; i++) await post('/tokens', { project_id: projectId })
  }

  const warnings = (): number => logged().match(/traces cannot be exported/g)?.length ?? 0

  const answer = async (status: TraceCollector['status']): Promise<void> => {
    collector.status = status
  }

  it.each([
    ['answers 500', () => answer(500)],
    ['answers 503', () => answer(503)],
    ['does not answer', () => answer('silent')],
    ['refuses connections', () => collector.close()],
  ])('and %s costs traces alone; the log says so once a minute, and spans come again', async (_, fail) => {
    await collector.has('POST /projects')
    await fail()
    let said = 0
    for (let minute = 1; minute <= 3; minute++) {
      // One for what was on its way when the collector failed may have been said before the first minute.
      said = warnings() + 1
      clock.advance(60_000)
      await tokens(5)
      await until(`the log says it ${said} times`, async () => {
        await tokens(1)
        return warnings() === said
      })
      await tokens(10)
      expect(warnings()).toBe(said)
    }
    await collector.close()
    collector = await TraceCollector.start(port)
    await until('spans come again', async () => {
      await tokens(1)
      return collector.named('POST /tokens').length > 0
    })
    await until('the log says so', async () => logged().includes('traces are exported again'))
    expect(warnings()).toBe(said)
    expect(said).toBeLessThan(5)
  })
})

/** Bytes in use by what cannot be collected. */
function heap(): number {
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')()
  return process.memoryUsage().heapUsed
}

it('a collector that does not answer costs no more memory than the queue', async () => {
  const collector = await TraceCollector.start()
  collector.status = 'silent'
  const clock = new FakeClock()
  const { log } = recordingLog()
  stub({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url })
  const { tracer, close } = await openTracing({ config, instanceId: 'one', clock, log })
  const spans = (count: number): void => {
    for (let i = 0; i < count; i++) tracer.span('one', { attributes: { number: i, text: `text ${i}` } }).end()
  }
  spans(5000)
  const before = heap()
  spans(50_000)
  // Each span takes more than 500 bytes.
  expect(heap() - before).toBeLessThan(5_000_000)
  const closing = close()
  clock.advance(2000)
  await closing
  await collector.close()
})
