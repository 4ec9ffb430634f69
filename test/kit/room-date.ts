import { noObserver, type Turn, type TurnObserver, type TurnRoom } from '../../dataplane/room/hooks.ts'
import type { Clock } from '../../shared/clock.ts'

/** Makes `Date` in room code the wall clock of the room's node. Code outside of rooms keeps the real time. */
export class RoomDate {
  readonly #clocks = new WeakMap<TurnRoom, Clock>()
  readonly #real = globalThis.Date
  /** Replaces the global `Date`. */
  readonly #date: DateConstructor

  /** `current`: returns the turn that has started the running code. */
  constructor(current: () => Turn | undefined) {
    const now = (): number | undefined => {
      const turn = current()
      const ms = turn && this.#clocks.get(turn.room)?.now()
      return ms === undefined ? undefined : Math.floor(ms)
    }
    this.#date = new Proxy(this.#real, {
      get: (real, name, receiver) =>
        name === 'now' ? () => now() ?? real.now() : Reflect.get(real, name, receiver),
      apply: (real) => new real(now() ?? real.now()).toString(),
      construct: (real, given, target) =>
        Reflect.construct(real, given.length === 0 ? [now() ?? real.now()] : given, target),
    })
    globalThis.Date = this.#date
  }

  /** Returns the observer of the turns of a node with this clock. */
  observer(clock: Clock): TurnObserver {
    return { ...noObserver, begin: ({ room }) => void this.#clocks.set(room, clock) }
  }

  /** Restores the global `Date`, unless other code has replaced it since. */
  restore(): void {
    if (globalThis.Date === this.#date) globalThis.Date = this.#real
  }
}
