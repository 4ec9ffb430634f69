import { closeBuiltins } from '../../dataplane/room/builtins.ts'
import { noObserver, type Turn, type TurnObserver, type TurnRoom } from '../../dataplane/room/hooks.ts'
import type { Clock } from '../../shared/clock.ts'

/** Property of a replaced `Date` that has been restored: the `Date` before it. */
const BEFORE = Symbol('before')

/** Makes `Date` in room code the wall clock of the room's node. Code outside of rooms keeps the real time. */
export class RoomDate {
  readonly #clocks = new WeakMap<TurnRoom, Clock>()
  #restored = false

  /** `current`: returns the turn that has started the running code. */
  constructor(current: () => Turn | undefined) {
    // Otherwise, the node would close the `Date` below in place of the real one.
    closeBuiltins()
    const now = (): number | undefined => {
      const turn = this.#restored ? undefined : current()
      const ms = turn && this.#clocks.get(turn.room)?.now()
      return ms === undefined ? undefined : Math.floor(ms)
    }
    const proxy: DateConstructor = new Proxy(globalThis.Date, {
      get: (before, name, receiver) => {
        if (name === BEFORE) return this.#restored ? before : undefined
        return name === 'now' ? () => now() ?? before.now() : Reflect.get(before, name, receiver)
      },
      // With itself as receiver, the real `Date` refuses it with its own error. A class that extends this one keeps its own properties.
      set: (before, name, value, receiver) =>
        Reflect.set(before, name, value, receiver === proxy ? before : receiver),
      apply: (before) => new before(now() ?? before.now()).toString(),
      construct: (before, given, target) =>
        Reflect.construct(before, given.length === 0 ? [now() ?? before.now()] : given, target),
    })
    globalThis.Date = proxy
  }

  /** Returns the observer of the turns of a node with this clock. */
  observer(clock: Clock): TurnObserver {
    return { ...noObserver, begin: ({ room }) => void this.#clocks.set(room, clock) }
  }

  /** Restores the global `Date`. If other code has replaced it since, it has no effect until that code restores it. */
  restore(): void {
    this.#restored = true
    for (let date: unknown = globalThis.Date; date; date = Reflect.get(date, BEFORE))
      globalThis.Date = date as DateConstructor
  }
}
