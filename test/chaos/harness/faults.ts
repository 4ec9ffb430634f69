import { sleep } from '../../../shared/clock.ts'
import type { Fault } from '../checker/history.ts'
import { DISABLING, type PlannedFault, RECOVERY_MS } from './plan.ts'
import type { Player } from './player.ts'
import type { System } from './system.ts'

/** How long a drain may take before the node is killed. */
const DRAIN_WITHIN_MS = 12_000

/** Does what was planned, when it was planned, and writes down what was really done. */
export class Faults {
  readonly #system: System
  readonly #players: readonly Player[]
  readonly #done: Fault[]
  readonly #running = new Set<Promise<void>>()
  readonly #cancels: (() => void)[] = []
  readonly #errors: unknown[] = []
  readonly #isAlone: boolean

  /** Every fault is added to `done` as it begins; one that is not over yet has no end. */
  constructor(system: System, players: readonly Player[], done: Fault[]) {
    this.#system = system
    this.#players = players
    this.#done = done
    this.#isAlone = system.doors().length === 1
  }

  start(plan: readonly PlannedFault[]): void {
    for (const fault of plan)
      this.#cancels.push(
        this.#system.clock.schedule(fault.at_ms, () => {
          const work = this.#do(fault).catch((error: unknown) => void this.#errors.push(error))
          this.#running.add(work)
          void work.then(() => this.#running.delete(work))
        }),
      )
  }

  /** Resolves when every fault is over and every node runs again. Rejects when one could not be done or undone. */
  async healed(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running)
    if (this.#errors.length > 0) throw this.#errors[0]
  }

  stop(): void {
    for (const cancel of this.#cancels) cancel()
  }

  async #do(planned: PlannedFault): Promise<void> {
    const { kind, node: slot = 0, for_ms: forMs, amount_ms: amountMs = 0 } = planned
    const node = this.#system.node(slot)
    const link = this.#system.link(slot)
    const { store, clock } = this.#system
    const pause = (ms: number) => sleep(clock, ms)
    // The node may still be on its way back from something that took longer than planned.
    if (planned.node !== undefined && !node) return
    if (node && DISABLING.includes(kind) && !this.#isSpared(node.node)) return
    // Control may still be on its way back.
    if (
      kind === 'control' &&
      this.#done.some((fault) => fault.kind === kind && fault.until > clock.monotonic())
    )
      return
    const over = this.#record(planned, node?.node)
    switch (kind) {
      case 'kill':
        await node?.kill()
        await pause(forMs)
        await this.#system.startNode(slot)
        break
      case 'drain':
        await node?.endWithin(DRAIN_WITHIN_MS)
        await this.#system.startNode(slot)
        break
      case 'pause':
        node?.pause()
        await pause(forMs)
        node?.resume()
        break
      case 'cut':
        link.cut()
        break
      case 'delay':
        link.delay(amountMs)
        await pause(forMs)
        link.delay(0)
        break
      case 'blackhole':
        link.hold(true)
        await pause(forMs)
        link.hold(false)
        break
      case 'clock':
        node?.jump(amountMs)
        break
      case 'redis_kept':
      case 'redis_lost':
        await store.stop(kind === 'redis_kept')
        await pause(forMs)
        await store.start()
        break
      case 'redis_pause':
        await store.pause()
        await pause(forMs)
        await store.resume()
        break
      case 'control':
        await this.#system.control?.kill()
        await pause(forMs)
        await this.#system.control?.start()
        break
      case 'race':
        for (const player of this.#chosen(planned)) player.race()
        break
      case 'client_cut':
        for (const player of this.#chosen(planned)) player.cut()
    }
    over()
  }

  /** Whether nothing else takes this node out, and another one goes on: on a slow machine nodes may be out for longer than planned. */
  #isSpared(node: string): boolean {
    const isOut = (which: string, forMs = 0) =>
      this.#done.some(
        (fault) =>
          fault.node === which &&
          DISABLING.includes(fault.kind) &&
          fault.until + forMs > this.#system.clock.monotonic(),
      )
    const others = this.#system.doors().filter((door) => door.node !== node)
    return !isOut(node) && (this.#isAlone || others.some((door) => !isOut(door.node, RECOVERY_MS)))
  }

  #chosen({ clients = [] }: PlannedFault): Player[] {
    return clients.flatMap((i) => this.#players[i] ?? [])
  }

  /** Writes a fault down as it begins; the returned function writes down its end. */
  #record(planned: PlannedFault, node: string | undefined): () => void {
    const { kind, amount_ms: amountMs } = planned
    const clients = this.#chosen(planned).map(({ name }) => name)
    const fault = {
      kind,
      ...(planned.node !== undefined && node !== undefined && { node }),
      ...(clients.length > 0 && { clients }),
      ...(amountMs !== undefined && { amount: `${amountMs} ms` }),
      at: this.#system.clock.monotonic(),
      until: Number.POSITIVE_INFINITY,
    }
    this.#done.push(fault)
    return () => {
      fault.until = this.#system.clock.monotonic()
    }
  }
}
