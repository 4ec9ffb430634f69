import { createWriteStream } from 'node:fs'
import { join } from 'node:path'
import { type Backend, startBackend } from '../../examples/backend/backend.ts'
import { createLog } from '../../shared/log.ts'
import type { LocalCluster } from './local-cluster.ts'

const HOST = '127.0.0.1'

/** Starts the example games and their backend in this process, playing on `cluster`; resolves when they can be opened in a browser. */
export function startGames({ folder, ports, secrets, addresses }: LocalCluster): Promise<Backend> {
  const file = createWriteStream(join(folder, 'games.log'), { flags: 'a' })
  return startBackend({
    host: HOST,
    port: ports.games,
    control_url: `http://${HOST}:${ports.api}`,
    control_token: secrets.operator_token,
    ws_url: `ws://${HOST}:${ports.websocket}`,
    nodes: { addresses, internal_token: secrets.internal_token },
    log: createLog({ log_level: 'info', log_format: 'json' }, {}, { write: (line) => void file.write(line) }),
  })
}
