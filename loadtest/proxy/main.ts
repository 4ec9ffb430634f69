import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { proxy } from 'hono/proxy'

/** A bare proxy in Hono. Its word is the address that it forwards to. Without one it answers as a room does. */

const [to] = process.argv.slice(2)
const app = new Hono()
if (to === undefined)
  app.all('*', async (c) => {
    await c.req.json()
    return c.json({ reply: { total: 1 }, epoch: 1_795_181_400_000, seq: 1 })
  })
else app.all('*', (c) => proxy(`${to}${c.req.path}`, c.req))

serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }, ({ port }) => process.send!({ port }))
process.on('message', () => process.send!(process.cpuUsage()))
process.on('disconnect', () => process.exit())
