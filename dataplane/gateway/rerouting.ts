import type { RoomAddress } from '../traffic.ts'
import type { GatewayContext } from './context.ts'
import type { Session } from './session.ts'
import type { Rerouting } from './session-record.ts'

/** For so long all rooms of a session must have been at one other node before it is told. */
const SETTLED_MS = 3000
/**
 * How long after a session was told it is not told again: a room that moves drags its members at most so often. Twice as long for each
 * failure in a row.
 */
const INTERVAL_MS = 60_000
const LONGEST_INTERVAL_MS = 3_600_000
/** A session that is still here so long after it was told will not go. */
const ANSWER_MS = 15_000
/** So many sessions are told at once. The resumes of all members of a large room would be more than its node can do in one moment. */
const PER_SWEEP = 50

/** It has come to `nodeId`, by way of a resume; undefined: it was not on its way. */
export function arrivedAt(nodeId: string, { at, failures, to }: Rerouting): Rerouting | undefined {
  if (to === undefined) return undefined
  return { at, failures: to === nodeId ? 0 : failures + 1 }
}

/** A node that has all rooms of a session. */
interface Target {
  readonly nodeId: string
  /** Where clients reach it. */
  readonly url: string
}

/** Tells clients which node all their rooms are at: no message has to cross from node to node when they have moved there. */
export class Rerouter {
  readonly #context: Pick<GatewayContext, 'clock' | 'metrics' | 'nearerNode' | 'reroutes'>
  readonly #save: (session: Session) => Promise<boolean>
  /** For each session whose rooms are at one other node: which, and since when, on the monotonic clock. */
  readonly #targets = new WeakMap<Session, { readonly nodeId: string; readonly since: number }>()

  /** `save` writes the record of a session; false: it is not here any more. */
  constructor(context: GatewayContext, save: (session: Session) => Promise<boolean>) {
    this.#context = context
    this.#save = save
  }

  /** To be called about once a second, with all sessions. */
  sweep(sessions: Iterable<Session>): void {
    if (!this.#context.reroutes()) return
    let left = PER_SWEEP
    for (const session of sessions) {
      if (!session.connection) continue
      this.#giveUp(session)
      if (left === 0 || !this.#may(session)) continue
      const target = this.#targetOf(session)
      if (!target) continue
      left -= 1
      void this.#tell(session, target)
    }
  }

  /** A session that has not gone where it was told will not go. */
  #giveUp(session: Session): void {
    const { clock, metrics } = this.#context
    const { rerouting } = session
    if (rerouting?.to === undefined || clock.now() - rerouting.at < ANSWER_MS) return
    session.rerouting = { at: rerouting.at, failures: rerouting.failures + 1 }
    metrics.reroutes.inc({ outcome: 'stayed' })
  }

  #may({ rerouting }: Session): boolean {
    if (!rerouting) return true
    const { at, failures, to } = rerouting
    const intervalMs = Math.min(LONGEST_INTERVAL_MS, INTERVAL_MS * 2 ** failures)
    return to === undefined && this.#context.clock.now() - at >= intervalMs
  }

  /** Where all rooms of a session have been for a while, and nothing is under way in any. */
  #targetOf(session: Session): Target | undefined {
    const now = this.#context.clock.monotonic()
    const rooms: RoomAddress[] = []
    for (const subscription of session.subscriptions.values()) {
      if (!subscription.taken || subscription.phase !== 'live') return undefined
      rooms.push(subscription.room)
    }
    const target = this.#context.nearerNode(rooms)
    const known = this.#targets.get(session)
    if (!target) this.#targets.delete(session)
    else if (known?.nodeId !== target.nodeId)
      this.#targets.set(session, { nodeId: target.nodeId, since: now })
    else if (now - known.since >= SETTLED_MS) return target
    return undefined
  }

  /** The record comes first: the node where the session turns up goes by it. */
  async #tell(session: Session, { nodeId, url }: Target): Promise<void> {
    const { clock, metrics } = this.#context
    const { connection, rerouting } = session
    session.rerouting = { at: clock.now(), failures: rerouting?.failures ?? 0, to: nodeId }
    const saved = await this.#save(session).catch(() => false)
    if (saved && connection?.open) {
      connection.send({ t: 'move', in_ms: 0, url })
      metrics.reroutes.inc({ outcome: 'told' })
    } else session.rerouting = rerouting
  }
}
