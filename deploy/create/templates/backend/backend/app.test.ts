import { createHmac } from 'node:crypto'
import { beforeAll, expect, test, vi } from 'vitest'

const KEY = `whsec_${Buffer.alloc(32, 7).toString('base64')}`
vi.stubEnv('DATABASE_FILE', ':memory:')
vi.stubEnv('NOTIFY_KEY', KEY)

let app: typeof import('./app.ts').app
beforeAll(async () => {
  app = (await import('./app.ts')).app
})

/** A request as a room sends it. */
function notice(id: string, data: Readonly<Record<string, number>>, key = KEY) {
  const at = String(Math.floor(Date.now() / 1000))
  const room = { project_id: 'prj_1', room_id: 'quiz:1', epoch: 1, seq: 1 }
  const body = JSON.stringify({
    type: 'matchOver',
    ...room,
    at: '2026-01-01T00:00:00.000Z',
    data,
  })
  const secret = Buffer.from(key.replace('whsec_', ''), 'base64')
  const signature = createHmac('sha256', secret)
    .update(`${id}.${at}.${body}`)
    .digest('base64')
  const headers = {
    'webhook-id': id,
    'webhook-timestamp': at,
    'webhook-signature': `v1,${signature}`,
  }
  return app.request('/api/notices', { method: 'POST', headers, body })
}

test('a guest keeps the player, and gets the coins of a notice once', async () => {
  const first = await app.request('/api/coins')
  const cookie = first.headers.get('set-cookie')!.split(';')[0]!
  const player = decodeURIComponent(cookie).split('=')[1]!.split('.')[0]!
  for (const id of ['n-1', 'n-1', 'n-2'])
    expect((await notice(id, { [player]: 3 })).status).toBe(204)
  const again = await app.request('/api/coins', { headers: { cookie } })
  expect(await again.json()).toEqual({ coins: 6 })
})

test('a forged cookie is a new guest, and a forged notice is refused', async () => {
  const forged = await app.request('/api/coins', {
    headers: { cookie: 'player=ada.AAAA' },
  })
  expect(forged.headers.get('set-cookie')).not.toContain('ada')
  const other = `whsec_${Buffer.alloc(32, 8).toString('base64')}`
  expect((await notice('n-3', { ada: 100 }, other)).status).toBe(401)
})
