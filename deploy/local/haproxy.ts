import { readFile } from 'node:fs/promises'
import type { Ports } from './ports.ts'

/** The configuration of haproxy for these ports, from the template beside this file. */
export async function haproxyConfig(ports: Ports): Promise<string> {
  const template = await readFile(new URL('./haproxy.cfg', import.meta.url), 'utf8')
  const lines: Readonly<Record<string, string>> = {
    websocket: String(ports.websocket),
    api: String(ports.api),
    nodes: ports.nodes
      .map(
        ({ websocket, admin }, index) => `    server node-${index + 1} 127.0.0.1:${websocket} port ${admin}`,
      )
      .join('\n'),
    controls: ports.controls
      .map((port, index) => `    server control-${index + 1} 127.0.0.1:${port}`)
      .join('\n'),
  }
  return template.replace(/\{\{(\w+)\}\}/g, (_, name: string) => lines[name] ?? '')
}
