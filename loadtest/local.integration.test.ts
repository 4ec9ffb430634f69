import { afterEach, expect, it, vi } from 'vitest'
import { type ServiceProcesses, startServiceProcesses } from '../test/support/service-processes.ts'

const WITHIN = { timeout: 60_000, interval: 50 }

let service: ServiceProcesses | undefined
afterEach(() => service?.close())

/** Which of the processes still run. */
function alive({ pids }: ServiceProcesses): string[] {
  return Object.entries(pids).flatMap(([name, pid]) => {
    try {
      process.kill(pid, 0)
      return [name]
    } catch {
      return []
    }
  })
}

it('starts everything a service needs, each process with metrics of its own', async () => {
  service = await startServiceProcesses(2)
  expect(Object.keys(service.pids)).toEqual(
    expect.arrayContaining(['control-1', 'control-2', 'node-1', 'node-2']),
  )
  expect(service.metrics.map(({ name }) => name)).toEqual(['node-1', 'node-2', 'control-1', 'control-2'])
  for (const { url } of service.metrics)
    expect(await (await fetch(`${url}/metrics`)).text()).toContain('process_cpu_seconds_total')
  expect((await fetch(`${service.controlUrl}/projects`)).status).toBe(401)
  const urls = [...service.metrics.map(({ url }) => url), service.controlUrl, ...service.wsUrls]
  const ports = urls.map((url) => Number(new URL(url).port))
  expect(Math.max(...ports) - Math.min(...ports), 'neighbours, which no one else is given').toBeLessThan(48)

  await service.close()
  await vi.waitFor(() => expect(alive(service!)).toEqual([]), WITHIN)
})

it('leaves no process behind when it is killed itself', async () => {
  service = await startServiceProcesses(1)
  expect(alive(service)).toContain('node-1')
  service.kill()
  await vi.waitFor(() => expect(alive(service!)).toEqual([]), WITHIN)
})
