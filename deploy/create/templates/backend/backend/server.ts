import { serve } from '@hono/node-server'
import { app } from './app.ts'

/** The backend in production. In development, vite.config.ts serves it together with the page. */
const port = Number(process.env.PORT ?? 8080)
const server = serve({ fetch: app.fetch, hostname: '127.0.0.1', port })
process.once('SIGTERM', () => server.close())
