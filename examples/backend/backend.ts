import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getRequestListener } from '@hono/node-server'
import { systemClock } from '../../shared/clock.ts'
import { closer } from '../../shared/http-server.ts'
import { randomToken } from '../../shared/ids.ts'
import type { Logger } from '../../shared/log.ts'
import { isLoopback } from '../../shared/origins.ts'
import { systemRandom } from '../../shared/random.ts'
import { createApp, Players } from './app.ts'
import { ControlClient, ControlError, OwnProject } from './control-client.ts'
import { Nodes, type NodesOptions } from './nodes.ts'
import { Bundles } from './pages.ts'

export interface BackendOptions {
  /** Address to listen on. */
  host: string
  /** Port to listen on; 0: any free port. */
  port: number
  /** Base address of the control API, such as `http://127.0.0.1:3000`. */
  control_url: string
  /** Operator token, if the control API requires one. */
  control_token?: string
  /** Project to use. Default: the backend finds or creates one. */
  project_id?: string
  /** Address of the data plane for browsers, such as `ws://127.0.0.1:4000`. */
  ws_url: string
  /** Nodes to show on the pages, and the internal token to query them. Default: none. */
  nodes?: Pick<NodesOptions, 'addresses' | 'internal_token'>
  /** Hosts of `roomful dev --lan` under which other devices reach this backend, and the websocket with it. */
  lanHosts?: ReadonlySet<string>
  /** Handles a request before the pages do. Returns true if it has answered. */
  before?: (request: IncomingMessage, response: ServerResponse) => boolean
  log: Logger
}

export interface Backend {
  /** Address of the pages, such as `http://127.0.0.1:8080`. */
  url: string
  /** Stops listening and closes open connections. */
  close(): Promise<void>
}

/**
 * Starts the backend of the example games. Rejects if the address is in use, or if the control API rejects `control_token`
 * or `project_id`. If the control API does not answer yet, the backend asks again at each login.
 */
export async function startBackend(options: BackendOptions): Promise<Backend> {
  const { host, port, ws_url: wsUrl, log } = options
  const control = new ControlClient(options.control_url, options.control_token)
  const project = new OwnProject(control, options.project_id)
  await project.credentials().then(
    (credentials) => log.info(credentials, 'the examples issue tokens under this key'),
    (error: unknown) => {
      const later = error instanceof ControlError && (error.status === 0 || error.status >= 500)
      if (!later) throw error
      log.warn(`${error.message}; logins are refused until it does`)
    },
  )

  const players = new Players(systemRandom.bytes(32), () => randomToken(systemRandom, 12))
  const nodes = options.nodes && new Nodes({ ...options.nodes, clock: systemClock })
  const app = createApp({
    project,
    players,
    bundles: new Bundles(),
    nodes,
    ws_url: wsUrl,
    local: isLoopback(host),
    lanHosts: options.lanHosts ?? new Set(),
    log,
  })
  const pages = getRequestListener(app.fetch)
  const server = createServer((request, response) => {
    if (!options.before?.(request, response)) void pages(request, response)
  })
  const close = closer(server)
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, resolve)
  })
  const { port: actual } = server.address() as AddressInfo
  const name = host.includes(':') ? `[${host}]` : host

  return {
    url: `http://${name}:${actual}`,
    close,
  }
}
