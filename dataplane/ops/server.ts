import type { AddressInfo } from 'node:net'
import { type ServerType, serve } from '@hono/node-server'
import type { Hono } from 'hono'
import type { AdminEnv } from './admin.ts'

/** The running operations side of a node. */
export interface AdminServer {
  readonly host: string
  /** The port it really listens on. */
  readonly port: number
  /** Stops listening and ends the connections. */
  close(): Promise<void>
}

/** Serves the operations side at an address. Rejects when the address cannot be had. */
export async function serveAdmin(app: Hono<AdminEnv>, host: string, port: number): Promise<AdminServer> {
  const server = await new Promise<ServerType>((resolve, reject) => {
    const listening = serve({ fetch: app.fetch, hostname: host, port }, () => {
      listening.off('error', reject)
      resolve(listening)
    })
    listening.once('error', reject)
  })
  return {
    host,
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        if ('closeAllConnections' in server) server.closeAllConnections()
      }),
  }
}
