import { pino } from 'pino'
import { startNode } from '../../dataplane/node.ts'
import { reportCpu } from './cpu-report.ts'
import { benchRoom } from './room.ts'

/** One node as it comes, with room for the load: the server under test. */
let inputs = 0
const node = await startNode({
  rooms: [benchRoom(process.env.BENCH_TICK === '1', () => inputs++)],
  ws_port: 0,
  admin_port: 0,
  control_url: process.env.BENCH_CONTROL_URL!,
  internal_token: process.env.BENCH_INTERNAL_TOKEN!,
  log: pino({ level: 'warn' }),
})
reportCpu({ inputs: () => inputs })
process.send?.({ ready: Number(new URL(node.ws_url).port) })
