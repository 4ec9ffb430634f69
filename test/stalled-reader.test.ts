import { defineRoom } from 'roomful'
import { connect } from 'roomful/client'
import * as v from 'valibot'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { startService, type TestService } from './support/service.ts'
import { tamperedSocket } from './support/tampered-socket.ts'

const UPDATES = 4000
const FIELDS = 50

/** Every step changes one long text, so that a reader who stops falls megabytes behind; every hundredth is an event. */
const ledger = defineRoom({
  type: 'ledger',
  messages: { step: { data: v.object({ n: v.number() }) } },
  events: { hundred: v.object({ n: v.number() }) },
  sync: { rate: 0 },
  durability: 'none',
  create: () => ({ last: 0, pages: {} as Record<string, string> }),
  on_message(state, input, ctx) {
    const { n } = input.data
    state.last = n
    state.pages[`page-${n % FIELDS}`] = `${n}`.repeat(500)
    if (n % 100 === 0) ctx.emit('hundred', { n })
  },
})

let service: TestService
beforeAll(async () => {
  service = await startService({
    rooms: [ledger],
    node: {
      session_messages_per_second: 100_000,
      outbox_high_water_bytes: 64 * 1024,
      outbox_limit_bytes: 512 * 1024,
    },
  })
})
afterAll(() => service.close())

/** The most bytes that have waited for one client. */
async function queuedBytes(): Promise<number> {
  const response = await fetch(`${service.admin_url}/admin/runtime`, {
    headers: { 'x-service-internal-token': service.internal_token },
  })
  const { sessions } = (await response.json()) as { sessions: { queued_bytes: number }[] }
  return Math.max(...sessions.map((session) => session.queued_bytes))
}

it('gives a reader that stalled through 4,000 updates the right state and every event, within its bounds', async () => {
  const { project_id: projectId, token } = await service.login()
  const network = tamperedSocket()
  const writer = await connect(service.ws_url, { projectId, token })
  const reader = await connect(service.ws_url, { projectId, token, WebSocket: network.WebSocket })
  const [writing, reading] = [
    await writer.join<typeof ledger>('ledger'),
    await reader.join<typeof ledger>('ledger'),
  ]
  const hundreds: number[] = []
  reading.onMessage('hundred', ({ n }) => void hundreds.push(n))

  network.stall()
  let most = 0
  for (let n = 1; n <= UPDATES; n++) {
    const sent = writing.send('step', { n })
    if (n % 50 === 0) await sent
    if (n % 500 === 0) most = Math.max(most, await queuedBytes())
  }
  expect(reading.state.last).toBeLessThan(UPDATES)
  expect(most).toBeGreaterThan(0)
  expect(most).toBeLessThan(512 * 1024 + 200 * 1024)

  network.read()
  await vi.waitFor(() => expect(reading.state).toEqual(writing.state), { timeout: 60_000 })
  expect(reading.state.last).toBe(UPDATES)
  expect(hundreds).toEqual(Array.from({ length: UPDATES / 100 }, (_, i) => (i + 1) * 100))
  expect(reader.stats.resyncs.unasked).toBeGreaterThan(0)
  expect(reader.stats).toMatchObject({ reconnects: 0, resyncs: { checksum: 0, sequence: 0 } })
  expect(await service.metric('service_slow_consumers_total{action="stalled"}')).toBeGreaterThan(0)
  writer.close()
  reader.close()
})
