import type { Clock } from '../shared/clock.ts'
import type { Logger } from '../shared/log.ts'
import type { Ownership } from './cluster/ownership.ts'
import type { Gateway } from './gateway/gateway.ts'
import type { RoomHost } from './rooms/host.ts'

/** How much longer than its clients take to leave a node may take to end. */
const SHUT_DOWN_SPARE_MS = 10_000

/** What takes part when a node ends. */
export interface DrainParts {
  readonly ownership: Ownership
  readonly host: RoomHost
  readonly gateway: Gateway
  readonly clock: Clock
  readonly log: Logger
  /** Other processes listen on its port: they get every client that comes from now on. */
  readonly shares: boolean
}

/**
 * Ends a node whose clients and rooms go on at others, `drainMs` and 10 s later at the latest, whether or not the store answers; `stopOps`
 * lets go of what is left last.
 */
export async function drain(parts: DrainParts, drainMs: number, stopOps: () => Promise<void>): Promise<void> {
  const { clock, log } = parts
  const timeout = new Promise<'timeout'>((resolve) => {
    clock.schedule(drainMs + SHUT_DOWN_SPARE_MS, () => resolve('timeout'))
  })
  const done = drainSteps(parts, drainMs, stopOps).then(() => 'done' as const)
  if ((await Promise.race([done, timeout])) === 'timeout')
    log.warn('the node could not end in time: what the store has not answered is left behind')
}

/** Rooms first, which go on at other nodes while their clients are still here; then the clients; then whatever others see of the node. */
async function drainSteps(parts: DrainParts, drainMs: number, stopOps: () => Promise<void>): Promise<void> {
  const { ownership, gateway, shares } = parts
  await Promise.all([ownership.drain(), shares && gateway.stopListening()])
  await ownership.handOver()
  await gateway.drain(drainMs)
  await stop(parts, stopOps)
}

/** Ends a node that has no clients; its rooms are saved and released for the first node that asks for them. */
export async function stop(
  { host, gateway, ownership }: Pick<DrainParts, 'host' | 'gateway' | 'ownership'>,
  stopOps: () => Promise<void>,
): Promise<void> {
  await host.close()
  await gateway.close()
  await ownership.stop()
  await stopOps()
}
