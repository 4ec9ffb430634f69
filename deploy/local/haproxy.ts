import { readFile } from 'node:fs/promises'
import { haproxyAt } from '../balancer/configuration.ts'
import type { Ports } from './ports.ts'

/** The configuration of haproxy for these ports: that for production, at other places. */
export async function haproxyConfig(ports: Ports): Promise<string> {
  const text = await readFile(new URL('../balancer/haproxy.cfg', import.meta.url), 'utf8')
  return haproxyAt(text, {
    websocket: here(ports.websocket),
    control: here(ports.api),
    operations: here(ports.balancer),
    nodes: ports.nodes.map(({ websocket, admin }) => ({ address: here(websocket), health_port: admin })),
    controls: ports.controls.map((port) => ({ address: here(port) })),
  })
}

const here = (port: number): string => `127.0.0.1:${port}`
