import type { Clock } from '../shared/clock.ts'
import type { Logger } from '../shared/log.ts'
import type { Span, Tracer } from '../shared/tracing/tracer.ts'
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
  readonly tracer: Tracer
  /** Other processes listen on its port: they get every client that comes from now on. */
  readonly shares: boolean
}

/**
 * Ends a node whose clients and rooms go on at others, `drainMs` and 10 s later at the latest, whether or not the store answers; `stopOps`
 * lets go of what is left last.
 */
export async function drain(parts: DrainParts, drainMs: number, stopOps: () => Promise<void>): Promise<void> {
  const { ownership, host, gateway, clock, log, tracer } = parts
  const span = tracer.span('drain', {
    attributes: { 'roomful.rooms': host.size, 'roomful.sessions': gateway.sessions },
  })
  const timeout = new Promise<'timeout'>((resolve) => {
    clock.schedule(drainMs + SHUT_DOWN_SPARE_MS, () => resolve('timeout'))
  })
  const done = drainSteps(parts, span, drainMs, stopOps).then(() => 'done' as const)
  const result = await Promise.race([done, timeout])
  if (result === 'timeout') {
    log.warn('the node could not end in time: what the store has not answered is left behind')
    span.fail(result)
  }
  span.set({ 'roomful.result': result, 'roomful.rooms_handed_over': ownership.handedOver })
  span.end()
}

/** Rooms first, which go on at other nodes while their clients are still here; then the clients; then whatever others see of the node. */
async function drainSteps(
  parts: DrainParts,
  drainSpan: Span,
  drainMs: number,
  stopOps: () => Promise<void>,
): Promise<void> {
  const { ownership, gateway, tracer, shares } = parts
  const step = async (name: string, work: (span: Span) => Promise<void>): Promise<void> => {
    const span = tracer.span(name, { parent: drainSpan })
    await work(span)
    span.end()
  }
  await step('drain.start', async () => {
    await Promise.all([ownership.drain(), shares && gateway.stopListening()])
  })
  await step('drain.rooms', (span) => ownership.handOver(span))
  await step('drain.clients', () => gateway.drain(drainMs))
  await step('drain.stop', () => stop(parts, stopOps))
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
