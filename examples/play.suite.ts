import type { Member, RoomDefinition } from '../dataplane/rooms/definition.ts'
import { validate } from '../dataplane/rooms/failures.ts'
import { Handlers } from '../dataplane/rooms/inputs.ts'
import { createState, LiveState } from '../dataplane/rooms/state.ts'
import type { Json } from '../shared/json.ts'
import type { RoomState, TypedRoom } from '../shared/room-types.ts'
import { FakeClock } from '../test/support/fake-clock.ts'
import { SeededRandom } from '../test/support/seeded-random.ts'

interface Event {
  name: string
  data: Json
}

/** Plays a room as its members would: what they send is validated and becomes one turn of the real room logic each. */
export class Play<R extends RoomDefinition & TypedRoom> {
  readonly #definition: R
  readonly #state: LiveState
  readonly #logic: Handlers
  readonly #members: Member[] = []
  /** All events so far. */
  readonly events: Event[] = []

  constructor(definition: R) {
    this.#definition = definition
    const silent = () => undefined
    const first = createState(definition, {}, Number.POSITIVE_INFINITY)
    this.#state = new LiveState(first, Number.POSITIVE_INFINITY, silent, silent)
    const room = {
      roomId: `${definition.type}:test`,
      log: { debug: silent, info: silent, warn: silent, error: silent },
      state: this.#state,
      environment: { clock: new FakeClock(), random: new SeededRandom(1) },
      memberships: { members: this.#members },
    }
    this.#logic = new Handlers(definition, room, () => true)
  }

  get state(): RoomState<R> {
    return this.#state.present as RoomState<R>
  }

  /** Takes a seat as `member_id`. */
  join(memberId: string, sub: string | null = null): string {
    const member = { id: memberId, sub, connected: true, data: null }
    this.#members.push(member)
    this.#logic.run('onJoin', member, {})
    return memberId
  }

  leave(memberId: string): void {
    const [member] = this.#members.splice(
      this.#members.findIndex((other) => other.id === memberId),
      1,
    )
    if (member) this.#logic.run('onLeave', member)
  }

  /** Returns the reply, where there is one. Throws what the member would be told: why the data does not fit, or what the room logic threw. */
  send(memberId: string, type: string, data: Json): Json | undefined {
    const spec = this.#definition.messages[type]
    const member = this.#members.find((other) => other.id === memberId)
    if (!spec || !member) throw new Error(`no message ${type}, or no one is ${memberId}`)
    const checked = validate(spec.data, data)
    if (!checked.ok) throw new Error(checked.message)
    const { events, reply } = this.#logic.run(
      'onMessage',
      { type, data: checked.value, member },
      undefined,
      spec,
    )
    this.events.push(...events)
    return reply
  }
}
