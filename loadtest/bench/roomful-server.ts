import { pino } from 'pino'
import type { startNode as StartNode } from '../../dataplane/node.ts'
import { reportCpu } from './cpu-report.ts'
import { benchRoom } from './room.ts'

/** One node as it comes: the server under test. The compiled code, since that is what runs in production (`npm run build`). */
const built = new URL('../../dist/dataplane/node.js', import.meta.url).href
const { startNode }: { startNode: typeof StartNode } = await import(built)
let inputs = 0
const node = await startNode({
  rooms: [benchRoom(process.env.BENCH_TICK === '1', () => inputs++)],
  ws_port: 0,
  admin_port: 0,
  control_url: process.env.BENCH_CONTROL_URL!,
  internal_token: process.env.BENCH_INTERNAL_TOKEN!,
  new_rooms_per_minute: 0,
  max_rooms_per_project: 0,
  log: pino({ level: 'warn' }),
})
reportCpu({ inputs: () => inputs })
process.send?.({ ready: Number(new URL(node.ws_url).port) })
