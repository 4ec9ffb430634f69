import http from 'node:http'
import { serve } from '@hono/node-server'
import { type Context, Hono } from 'hono'
import { proxy } from 'hono/proxy'

/**
 * A bare proxy in Hono: `main.ts helper URL` forwards to URL with the helper of Hono, and `main.ts http URL` with the HTTP client of Node, which
 * costs less. `main.ts answer` answers as a room does.
 */

const [how, to] = process.argv.slice(2)
const agent = new http.Agent({ keepAlive: true })

/** Forwards a body that is held whole. */
const forward = async (c: Context): Promise<Response> => {
  const body = await c.req.text()
  const headers = { ...c.req.header(), 'content-length': Buffer.byteLength(body) }
  return new Promise((resolve, reject) => {
    const request = http.request(
      `${to}${c.req.path}`,
      { method: c.req.method, headers, agent },
      (response) => {
        let text = ''
        response.setEncoding('utf8').on('data', (part) => (text += part))
        response.on('end', () => resolve(c.body(text, 200, { 'content-type': 'application/json' })))
      },
    )
    request.on('error', reject)
    request.end(body)
  })
}

const app = new Hono()
app.all('*', async (c) => {
  if (how === 'helper') return proxy(`${to}${c.req.path}`, c.req)
  if (how === 'http') return forward(c)
  await c.req.json()
  return c.json({ reply: { total: 1 }, epoch: 1_795_181_400_000, seq: 1 })
})
// The caller retries. Without this, Hono prints each error.
app.onError((_, c) => c.text('', 502))

serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }, ({ port }) => process.send!({ port }))
process.on('message', () => process.send!(process.cpuUsage()))
process.on('disconnect', () => process.exit())
