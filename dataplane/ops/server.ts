import type { AddressInfo } from 'node:net'
import { type ServerType, serve } from '@hono/node-server'
import type { Hono } from 'hono'
import { type AdminOptions, createAdminApp } from './admin.ts'
import { ClusterSearch, type ClusterSearchParts } from './cluster-search.ts'

/** The running operations side of a node. */
export interface AdminServer {
  readonly host: string
  /** The port it really listens on. */
  readonly port: number
  /** Stops listening and ends the connections. */
  close(): Promise<void>
}

/** What it is made of. */
export type AdminServerOptions = Omit<AdminOptions, 'searchCluster'> & ClusterSearchParts

/** Serves the operations side at an address. Rejects when the address cannot be had, or the store cannot be reached. */
export async function serveAdmin(
  options: AdminServerOptions,
  host: string,
  port: number,
): Promise<AdminServer> {
  const search = new ClusterSearch(options)
  const app = createAdminApp({ ...options, searchCluster: (q, limit) => search.find(q, limit) })
  await search.start()
  const server = await listen(app.fetch, host, port).catch(async (error: unknown) => {
    await search.stop()
    throw error
  })
  return {
    host,
    port: (server.address() as AddressInfo).port,
    close: async () => {
      await search.stop()
      await new Promise<void>((resolve) => {
        server.close(() => resolve())
        if ('closeAllConnections' in server) server.closeAllConnections()
      })
    },
  }
}

const listen = (fetch: Hono['fetch'], hostname: string, port: number): Promise<ServerType> =>
  new Promise((resolve, reject) => {
    const server = serve({ fetch, hostname, port }, () => {
      server.off('error', reject)
      resolve(server)
    })
    server.once('error', reject)
  })
