import { Registry } from 'prom-client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLog } from '../../shared/log.ts'
import { systemRandom } from '../../shared/random.ts'
import { launchChromium } from '../../test/support/chromium.ts'
import type { RoomDescription } from '../descriptions.ts'
import { createAdminApp } from './admin.ts'
import { serveAdmin } from './server.ts'

const TOKEN = 'a-token-between-processes'
const HOSTILE = '<img src=x onerror=alert(1)>'

let seq = 7
let draining = false
const rooms = (): RoomDescription[] => [
  {
    room_id: `arena:${HOSTILE}`,
    project_id: 'prj_1',
    room_type: 'arena',
    key: HOSTILE,
    epoch: 1,
    seq,
    checksum: 0xabc,
    members: [
      { member_id: 'mem_1', session_id: 'ses_1', sub: HOSTILE, connected: true, node_id: 'node_1' },
      { member_id: 'mem_2', session_id: 'ses_2', sub: null, connected: false, node_id: 'node_1' },
    ],
    member_count: 2,
    connected_count: 1,
  },
  {
    room_id: 'chess:b',
    project_id: 'prj_1',
    room_type: 'chess',
    key: 'b',
    epoch: 1,
    seq,
    checksum: 1,
    members: [],
    member_count: 0,
    connected_count: 0,
  },
]

const app = createAdminApp({
  internal_token: TOKEN,
  registry: new Registry(),
  random: systemRandom,
  log: createLog({ level: 'silent', format: 'json' }),
  ready: async () => [],
  describeNode: () => ({
    node_id: 'node_1',
    version: '1.2.3',
    started_at: new Date().toISOString(),
    draining,
    load: { event_loop_utilisation: 0.42, event_loop_delay_ms: 3, rss_bytes: 50 * 1024 ** 2 },
  }),
  describeRooms: ({ include_state, room_id }) => {
    const items = rooms()
      .filter((room) => room_id === undefined || room.room_id === room_id)
      .map((room) => (include_state ? { ...room, state: { seq, words: HOSTILE } } : room))
    return { items, found: items.length, total: 2 }
  },
  describeSessions: () => ({ items: [], found: 0, total: 0 }),
  members: () => 2,
  describeCluster: () => [],
  findOwner: async () => undefined,
  drain: () => {
    draining = true
  },
})

describe('the admin page', () => {
  const opened: { close(): Promise<unknown> }[] = []
  let address = ''
  let newPage: () => Promise<import('playwright-core').Page>

  beforeAll(async () => {
    const server = await serveAdmin(app, '127.0.0.1', 0)
    const browser = await launchChromium()
    opened.push(browser, server)
    address = `http://127.0.0.1:${server.port}/admin`
    newPage = () => browser.newPage()
  }, 180_000)

  afterAll(async () => {
    for (const each of opened) await each.close()
  })

  it('asks for the token once, shows the node live, opens rooms and drains', async () => {
    const page = await newPage()
    const complaints: string[] = []
    page.on('pageerror', (error) => complaints.push(error.message))
    page.on(
      'console',
      (message) => message.text().includes('Content Security') && complaints.push(message.text()),
    )
    page.on('dialog', (dialog) => complaints.push(dialog.message()))
    page.on(
      'request',
      (request) => request.url().startsWith('http') && requested.add(new URL(request.url()).origin),
    )
    const requested = new Set<string>()

    await page.goto(address)
    await page.getByLabel('Token').fill('not the token')
    await page.getByRole('button', { name: 'Show the node' }).click()
    await page.getByText('does not accept this token').waitFor()
    await page.getByLabel('Token').fill(TOKEN)
    await page.getByRole('button', { name: 'Show the node' }).click()
    await page.getByText('serving').waitFor()
    expect(await page.locator('#members-count').textContent()).toBe('2')
    expect(await page.locator('#loop').textContent()).toBe('42 %')

    await page.getByRole('button', { name: `arena:${HOSTILE}` }).click()
    await page.getByText('"seq": 7').waitFor()
    expect(await page.locator('.details li').allTextContents()).toEqual([
      `${HOSTILE} · ses_1 at node_1`,
      'mem_2 · ses_2 at node_1',
    ])
    seq = 8
    await page.getByText('"seq": 8').waitFor()

    await page.getByLabel('Filter').fill('chess')
    await page.waitForFunction(() => document.querySelectorAll('#rooms tbody tr').length === 1)
    expect(await page.locator('#rooms tbody tr').textContent()).toContain('chess:b')

    await page.reload()
    await page.getByText('serving').waitFor()
    await page.getByRole('button', { name: 'Drain…' }).click()
    await page.getByRole('button', { name: 'Drain the node' }).click()
    await page.getByText('draining').waitFor()
    expect(draining).toBe(true)

    expect(complaints).toEqual([])
    expect([...requested]).toEqual([new URL(address).origin])
  })

  it('fits a phone', async () => {
    const page = await newPage()
    await page.setViewportSize({ width: 360, height: 720 })
    await page.goto(address)
    await page.getByLabel('Token').fill(TOKEN)
    await page.getByRole('button', { name: 'Show the node' }).click()
    await page.getByRole('button', { name: 'chess:b' }).waitFor()
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360)
  })
})
