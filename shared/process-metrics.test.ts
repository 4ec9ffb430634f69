import fs from 'node:fs'
import { open } from 'node:fs/promises'
import { Registry } from 'prom-client'
import { expect, it, onTestFinished, vi } from 'vitest'
import { processMetrics } from './process-metrics.ts'

function scraped(): () => Promise<string> {
  const registry = new Registry()
  processMetrics(registry)
  return () => registry.metrics()
}

const openFiles = (text: string): number => Number(/^service_process_open_fds (\d+)$/m.exec(text)?.[1])

it('tells how many files the process has open', async () => {
  const scrape = scraped()
  const before = openFiles(await scrape())
  const files = await Promise.all(Array.from({ length: 50 }, () => open('/dev/null')))
  onTestFinished(async () => void (await Promise.all(files.map((file) => file.close()))))
  const more = openFiles(await scrape()) - before
  expect(more).toBeGreaterThan(45)
  expect(more).toBeLessThan(55)
})

it('looks at no socket and lists no files in the event loop: a scrape must not take longer the more clients there are', async () => {
  const scrape = scraped()
  const looks = [vi.spyOn(fs, 'readdirSync'), vi.spyOn(process, 'getActiveResourcesInfo')]
  onTestFinished(() => looks.forEach((look) => void look.mockRestore()))
  const text = await scrape()
  for (const look of looks) expect(look).not.toHaveBeenCalled()
  expect(text).not.toContain('nodejs_active_')
  expect(text).toContain('service_process_resident_memory_bytes ')
})
