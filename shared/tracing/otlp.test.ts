import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { recordingLog } from '../../test/support/redis-store.ts'
import { SeededRandom } from '../../test/support/seeded-random.ts'
import { TraceCollector } from '../../test/support/trace-collector.ts'
import type { TracingConfig } from './config.ts'
import { openTracing, type Tracing } from './open.ts'

let collector: TraceCollector
let clock: FakeClock

beforeEach(async () => {
  collector = await TraceCollector.start()
  clock = new FakeClock()
})
afterEach(async () => {
  vi.unstubAllEnvs()
  await collector.close()
})

async function tracing(changes: Partial<TracingConfig> = {}): Promise<Tracing & { logged: () => string }> {
  const { log, logged } = recordingLog()
  const { tracer, ...opened } = await openTracing({
    config: collector.config({ headers: { authorization: 'Bearer of-the-collector' }, ...changes }),
    instance_id: 'one',
    clock,
    random: new SeededRandom(1),
    log,
  }).then((each) => ({ tracer: each.tracer, close: () => each.close() }))
  return { tracer, ...opened, logged }
}

const PARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
const UNSAMPLED = PARENT.replace(/01$/, '00')

describe('traces', () => {
  it('arrive with their times, attributes, parents and links', async () => {
    const { tracer, close } = await tracing()
    clock.advance(1000)
    const whole = tracer.span('whole', {
      parent: { traceparent: PARENT, tracestate: 'a=b' },
      kind: 'server',
      began_at: 250.5,
    })
    const part = tracer.span('part', {
      parent: whole,
      links: [PARENT, 'nonsense'],
      attributes: { word: 'x', number: 3, flag: true, nothing: undefined },
    })
    clock.advance(100)
    part.fail('broken', 'it broke')
    part.end()
    whole.set({ late: 'enough' })
    whole.end()
    await close()
    const began = Date.parse('2026-01-01T00:00:00.000Z')
    expect(collector.one('whole')).toMatchObject({
      service: 'roomful-test',
      instance: 'one',
      trace_id: PARENT.slice(3, 35),
      parent_id: 'b7ad6b7169203331',
      state: 'a=b',
      kind: 2,
      failed: false,
      attributes: { late: 'enough' },
      start: began + 250.5,
      end: began + 1100,
    })
    expect(collector.one('part')).toMatchObject({
      parent_id: collector.one('whole').span_id,
      kind: 1,
      failed: true,
      attributes: { word: 'x', number: 3, flag: true, 'error.type': 'broken' },
      links: [{ trace_id: PARENT.slice(3, 35), span_id: 'b7ad6b7169203331' }],
      start: began + 1000,
      end: began + 1100,
    })
    expect(collector.one('part').attributes).not.toHaveProperty('nothing')
    expect(collector.requests[0]).toMatchObject({
      path: '/v1/traces',
      headers: { authorization: 'Bearer of-the-collector', 'content-type': 'application/json' },
    })
  })

  it('pass on what came with their trace, unless it is not valid', async () => {
    const { tracer, close } = await tracing()
    const whole = tracer.span('whole', { parent: { traceparent: PARENT, tracestate: ' b=2, a=1,' } })
    const part = tracer.span('part', { parent: whole })
    expect([whole.tracestate, part.tracestate]).toEqual(['b=2,a=1', 'b=2,a=1'])
    for (const parent of [
      { traceparent: PARENT, tracestate: 'a=1,a=2' },
      { traceparent: 'nonsense', tracestate: 'a=1' },
      { tracestate: 'a=1' },
      undefined,
    ])
      expect(tracer.span('one', { parent }).tracestate).toBeUndefined()
    part.end()
    await close()
    expect(collector.one('part').state).toBe('b=2,a=1')
  })

  it('take nothing more once a span has ended', async () => {
    const { tracer, close } = await tracing()
    const span = tracer.span('one')
    span.end()
    span.set({ late: 'too' })
    span.fail('late')
    clock.advance(50)
    span.end()
    await close()
    const { attributes, failed, start, end } = collector.one('one')
    expect({ attributes, failed, took: end - start }).toEqual({ attributes: {}, failed: false, took: 0 })
  })

  it('follow a wall clock that was set', async () => {
    const { tracer, close } = await tracing()
    tracer.span('before').end()
    const real = clock.now.bind(clock)
    clock.now = () => real() + 3_600_000
    tracer.span('after').end()
    await close()
    expect(collector.one('after').start - collector.one('before').start).toBe(3_600_000)
  })

  it.each([
    ['always_on', 1, [true, true, true]],
    ['always_off', 1, [false, false, false]],
    ['traceidratio', 0, [false, false, false]],
    ['traceidratio', 1, [true, true, true]],
    ['parentbased_always_on', 1, [true, true, false]],
    ['parentbased_always_off', 1, [false, true, false]],
    ['parentbased_traceidratio', 0, [false, true, false]],
    ['parentbased_traceidratio', 1, [true, true, false]],
  ] as const)(
    'sampled by %s of %d: roots, parts of what is recorded, parts of what is not: %j',
    async (sampler, ratio, expected) => {
      const { tracer, close } = await tracing({ sampler, ratio })
      const spans = [undefined, PARENT, UNSAMPLED].map((parent) =>
        tracer.span('one', { parent: { traceparent: parent } }),
      )
      expect(spans.map(({ sampled }) => sampled)).toEqual(expected)
      expect(spans.map(({ traceparent }) => traceparent?.endsWith('01'))).toEqual(expected)
      for (const span of spans) span.end()
      await close()
      expect(collector.spans).toHaveLength(expected.filter(Boolean).length)
    },
  )

  it('carry what is said of the process, before what it would say itself', async () => {
    const attributes = { 'deployment.environment.name': 'staging', 'service.instance.id': 'pod-3' }
    const { tracer, close } = await tracing({ attributes })
    tracer.span('one').end()
    await close()
    expect(collector.requests[0]!.body).toContain('staging')
    expect(collector.one('one')).toMatchObject({ service: 'roomful-test', instance: 'pod-3' })
  })

  it('go as they are told: compressed, and in batches of a size', async () => {
    const batches = { delay_ms: 5000, patience_ms: 30_000, queue: 10, size: 3 }
    const { tracer, close } = await tracing({ compression: 'gzip', batches })
    for (let i = 0; i < 7; i++) tracer.span('one').end()
    await close()
    expect(collector.requests.map(({ headers }) => headers['content-encoding'])).toEqual([
      'gzip',
      'gzip',
      'gzip',
    ])
    expect(collector.spans).toHaveLength(7)
  })

  it('look at nothing in the environment themselves', async () => {
    vi.stubEnv('OTEL_EXPORTER_OTLP_COMPRESSION', 'gzip')
    vi.stubEnv('OTEL_RESOURCE_ATTRIBUTES', 'who=somebody-else')
    vi.stubEnv('OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT', '1')
    vi.stubEnv('OTEL_BSP_MAX_QUEUE_SIZE', '1')
    const { tracer, close } = await tracing()
    for (let i = 0; i < 3; i++) tracer.span('one', { attributes: { a: 1, b: 2 } }).end()
    await close()
    expect(collector.spans.map(({ attributes }) => attributes)).toEqual(Array(3).fill({ a: 1, b: 2 }))
    const [{ headers, body }] = collector.requests as [(typeof collector.requests)[0]]
    expect(headers).not.toHaveProperty('content-encoding')
    expect(body).not.toContain('somebody-else')
  })

  it('do not keep a process from ending for more than two seconds', async () => {
    collector.status = 503
    const { tracer, close, logged } = await tracing()
    tracer.span('lost').end()
    let closed = false
    const closing = close().then(() => {
      closed = true
    })
    await vi.waitFor(() => expect(collector.requests).toHaveLength(1), 60_000)
    clock.advance(1999)
    await Promise.resolve()
    expect(closed).toBe(false)
    clock.advance(1)
    await closing
    expect(logged()).toContain('the last traces were not taken within 2 seconds')
  })
})

it('traces that are off are nothing', async () => {
  const { log } = recordingLog()
  const { tracer, close } = await openTracing({
    config: undefined,
    instance_id: 'one',
    clock,
    random: new SeededRandom(1),
    log,
  })
  const span = tracer.span('one', { parent: { traceparent: PARENT } })
  span.end()
  await close()
  expect(span).toMatchObject({ traceparent: undefined, sampled: false })
  expect(collector.requests).toEqual([])
})
