import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { freePort, until } from '../../test/support/redis-server.ts'
import { recordingLog } from '../../test/support/redis-store.ts'
import { TraceCollector } from '../../test/support/tracing.ts'
import { type Clock, systemClock } from '../clock.ts'
import { openTracing } from './open.ts'

let collector: TraceCollector

beforeEach(async () => {
  collector = await TraceCollector.start()
  stub({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url })
})
afterEach(async () => {
  vi.unstubAllEnvs()
  await collector.close()
})

const stub = (environment: Readonly<Record<string, string>>): void => {
  for (const [name, value] of Object.entries(environment)) vi.stubEnv(name, value)
}

async function tracing(clock: Clock = systemClock, headers = '') {
  const { log, logged } = recordingLog()
  const config = { serviceName: 'roomful-test', headers }
  const { tracer, close } = await openTracing({ config, instanceId: 'one', clock, log })
  return { tracer, close, logged }
}

const PARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
const UNSAMPLED = PARENT.replace(/01$/, '00')

describe('traces', () => {
  it('arrive with their times, attributes, parents and links', async () => {
    const { tracer, close } = await tracing()
    const before = Date.now()
    const whole = tracer.span('whole', {
      parent: { traceparent: PARENT, tracestate: 'a=b' },
      kind: 'server',
      beganAt: systemClock.monotonic() - 5000,
    })
    const after = Date.now()
    const part = tracer.span('part', {
      parent: whole,
      links: [PARENT, 'nonsense'],
      attributes: { word: 'x', number: 3, flag: true, nothing: undefined },
    })
    part.fail('broken', 'it broke')
    part.end()
    part.set({ after: 'its end' })
    part.end()
    whole.set({ late: 'enough' })
    whole.end()
    await close()
    expect(collector.one('whole')).toMatchObject({
      service: 'roomful-test',
      instance: 'one',
      trace_id: PARENT.slice(3, 35),
      parent_id: 'b7ad6b7169203331',
      state: 'a=b',
      kind: 2,
      failed: false,
      attributes: { late: 'enough' },
    })
    const { start } = collector.one('whole')
    // Two clocks are read, and each rounds.
    expect(start).toBeGreaterThanOrEqual(before - 5002)
    expect(start).toBeLessThanOrEqual(after - 4998)
    expect(collector.one('part')).toMatchObject({
      parent_id: collector.one('whole').span_id,
      kind: 1,
      failed: true,
      links: [{ trace_id: PARENT.slice(3, 35), span_id: 'b7ad6b7169203331' }],
    })
    expect(collector.one('part').attributes).toEqual({
      word: 'x',
      number: 3,
      flag: true,
      'error.type': 'broken',
    })
    expect(collector.one('part').start).toBeGreaterThanOrEqual(before - 2)
  })

  it('are sent as the variables of OpenTelemetry say, with the headers that roomful has read', async () => {
    stub({
      OTEL_TRACES_SAMPLER: 'parentbased_always_off',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=staging',
      OTEL_SERVICE_NAME: 'games',
      OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '2',
    })
    const { tracer, close } = await tracing(systemClock, 'api-key=a%20b,x=2')
    for (const parent of [undefined, PARENT, UNSAMPLED, PARENT, PARENT])
      tracer.span('one', { parent: { traceparent: parent } }).end()
    await close()
    expect(collector.spans.map(({ service }) => service)).toEqual(['games', 'games', 'games'])
    expect(collector.requests).toHaveLength(2)
    expect(collector.requests[0]).toMatchObject({
      path: '/v1/traces',
      headers: { 'content-encoding': 'gzip', 'api-key': 'a b', x: '2' },
      body: expect.stringContaining('staging'),
    })
  })

  it('log the variables that OpenTelemetry does not understand', async () => {
    stub({ OTEL_TRACES_SAMPLER: 'jaeger_remote' })
    const { close, logged } = await tracing()
    await close()
    expect(logged()).toContain('jaeger_remote')
  })

  it('delay the end of a process by at most four seconds', async () => {
    collector.status = 503
    const clock = new FakeClock()
    const { tracer, close, logged } = await tracing(clock)
    tracer.span('lost').end()
    let closed = false
    const closing = close().then(() => {
      closed = true
    })
    await vi.waitFor(() => expect(collector.requests).toHaveLength(1), 60_000)
    clock.advance(3999)
    await Promise.resolve()
    expect(closed).toBe(false)
    clock.advance(1)
    await closing
    expect(logged()).toContain('the last traces could not be exported in time')
  })

  it('name the packages to install if they are missing', async () => {
    const { log } = recordingLog()
    const missing = () =>
      Promise.reject(new Error("Cannot find package '@opentelemetry/core' imported from /app/otlp.js"))
    const config = { serviceName: 'roomful-test', headers: '' }
    const opening = openTracing({ config, instanceId: 'one', clock: systemClock, log }, missing)
    await expect(opening).rejects.toThrow(
      /@opentelemetry\/core is not installed.*npm install @opentelemetry\/api .*@opentelemetry\/sdk-trace-base/,
    )
  })
})

/** All intervals are shorter than the defaults. The minutes of the log come from a fake clock. */
const HASTY = {
  OTEL_EXPORTER_OTLP_TIMEOUT: '50',
  OTEL_BSP_SCHEDULE_DELAY: '5',
  OTEL_BSP_EXPORT_TIMEOUT: '1000',
  OTEL_BSP_MAX_QUEUE_SIZE: '100',
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '20',
}

describe('a collector that rejects traces', () => {
  const open = async () => {
    const clock = new FakeClock()
    const opened = await tracing(clock)
    onTestFinished(() => {
      const closing = opened.close()
      clock.advance(4000)
      return closing
    })
    const { tracer, logged } = opened
    return {
      tracer,
      clock,
      logged,
      span: (name: string): void => tracer.span(name).end(),
      warnings: (): number => logged().match(/traces cannot be exported/g)?.length ?? 0,
    }
  }

  const answer = async (status: TraceCollector['status']): Promise<void> => {
    collector.status = status
  }

  it.each([
    ['answers 500', () => answer(500)],
    ['answers 503', () => answer(503)],
    ['does not answer', () => answer('silent')],
    ['refuses connections', () => collector.close()],
  ])('and %s costs traces alone; the log says so once a minute, and spans come again', async (_, fail) => {
    await collector.close()
    const port = await freePort()
    collector = await TraceCollector.start(port)
    stub({ ...HASTY, OTEL_EXPORTER_OTLP_ENDPOINT: collector.url })
    const { span, warnings, logged, clock } = await open()
    span('before')
    await collector.has('before')
    await fail()
    let said = 0
    for (let minute = 1; minute <= 3; minute++) {
      // One report, about batches that were on their way at the failure, may precede the first minute.
      said = warnings() + 1
      clock.advance(60_000)
      await until(`the log says it ${said} times`, async () => {
        span('lost')
        return warnings() === said
      })
      for (let i = 0; i < 10; i++) span('lost')
      expect(warnings()).toBe(said)
    }
    await collector.close()
    collector = await TraceCollector.start(port)
    await until('spans come again', async () => {
      span('after')
      return collector.named('after').length > 0
    })
    await until('the log says so', async () => logged().includes('traces are exported again'))
    expect(warnings()).toBe(said)
    expect(said).toBeLessThan(5)
  })

  it('uses no more memory than the queue', async () => {
    collector.status = 'silent'
    const { tracer } = await open()
    const spans = (count: number): void => {
      for (let i = 0; i < count; i++)
        tracer.span('one', { attributes: { number: i, text: `text ${i}` } }).end()
    }
    spans(5000)
    const before = heap()
    spans(50_000)
    // Each span takes more than 500 bytes.
    expect(heap() - before).toBeLessThan(5_000_000)
  })
})

/** Bytes in use that cannot be collected. */
function heap(): number {
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')()
  return process.memoryUsage().heapUsed
}
