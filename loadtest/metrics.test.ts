import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../shared/clock.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { startService, type TestService } from '../test/support/cluster.ts'
import { parseMetrics, Scraper, secondOf } from './metrics.ts'

describe('metrics as text', () => {
  it('are summed over the series of a name, whatever their labels', () => {
    const text = [
      '# HELP service_messages_received_total Messages.',
      '# TYPE service_messages_received_total counter',
      'service_messages_received_total{t="message"} 10',
      'service_messages_received_total{t="a } b {"} 2.5',
      'service_rooms 3',
      'service_start 1.5e9 1795181400000',
      'service_odd NaN',
      '',
    ].join('\n')
    expect(Object.fromEntries(parseMetrics(text))).toEqual({
      service_messages_received_total: 12.5,
      service_rooms: 3,
      service_start: 1.5e9,
    })
  })

  it('of a restarted process count from its start', () => {
    const metrics = (count: number) => new Map([['service_socket_writes_total', count]])
    expect(secondOf('node-1', metrics(130), metrics(100), 1).socket_writes).toBe(30)
    expect(secondOf('node-1', metrics(20), metrics(100), 1).socket_writes).toBe(20)
  })
})

/** Uses CPU until the system's counter, which may have steps of 10 ms, shows it. */
function useCpu(): void {
  const used = (): number => process.cpuUsage().user
  const before = used()
  while (used() === before);
}

describe('a node', () => {
  let service: TestService
  beforeAll(async () => {
    service = await startService()
  })
  afterAll(() => service.close())

  it('is read under its name, with additional figures', async () => {
    const scraper = new Scraper([{ name: 'node-1', url: service.adminUrl }], systemClock)
    await scraper.read()
    useCpu()
    const [second] = await scraper.read()
    expect(second).toMatchObject({ name: 'node-1', up: true, sessions: 0 })
    expect(second!.cpu_seconds).toBeGreaterThan(0)
    expect(second!.rss_bytes).toBeGreaterThan(1e7)
  })

  it('that did not answer for a while has used its CPU during all that time', async () => {
    const clock = new FakeClock()
    const scraper = new Scraper([{ name: 'node-1', url: service.adminUrl }], clock)
    expect((await scraper.read())[0]).toMatchObject({ seconds: 1, cpu_seconds: 0 })
    clock.advance(3000)
    expect((await scraper.read())[0]).toMatchObject({ seconds: 3 })
  })

  it('that does not answer is down', async () => {
    const [second] = await new Scraper([{ name: 'gone', url: 'http://127.0.0.1:9' }], systemClock).read()
    expect(second).toMatchObject({ name: 'gone', up: false, cpu_seconds: 0, rss_bytes: 0 })
  })
})
