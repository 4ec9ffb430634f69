import { getRequestListener } from '@hono/node-server'
import { defineConfig, type Plugin } from 'vite'

/** In development, serves `/api` at the address of the page. A saved file of the backend is used from the next request on. */
const backend: Plugin = {
  name: 'backend',
  configureServer(server) {
    const listen = getRequestListener(async (request) => {
      const { app } = await server.ssrLoadModule('/backend/app.ts')
      return app.fetch(request)
    })
    server.middlewares.use((request, response, next) => {
      if (request.url?.startsWith('/api/')) void listen(request, response)
      else next()
    })
  },
}

// NOTIFY_URL in .env.development names this port.
export default defineConfig({
  plugins: [backend],
  server: { port: 5173, strictPort: true },
})
