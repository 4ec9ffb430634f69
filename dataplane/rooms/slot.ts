import type { Claim } from '../../shared/store/port.ts'
import type { Inbox } from '../inbox.ts'
import { type Nowhere, nowhere, refuseAll, unavailableText } from '../place.ts'
import { type RoomAddress, roomIdOf, type ToOwner } from '../traffic.ts'
import type { RoomDefinition } from './definition.ts'
import { Replies } from './delivery.ts'
import type { RoomEnvironment } from './environment.ts'
import type { RoomHost } from './host.ts'
import { giveBack, openRoom } from './open.ts'
import { Room, type RoomEnd } from './room.ts'
import type { ClaimedRoom } from './stream.ts'

/** Epoch of answers about a room that is not here: it belongs to no owner. */
export const NO_EPOCH = { epoch: 0 }

/**
 * State of a room name at the node that owns it. `opening`: messages wait while the room is restored or made.
 * `running`: they are handled. `frozen`: they wait, since the node's lease has run out or the store is silent. `leaving`: they wait for the next
 * owner. `gone`: nothing of it is left here.
 */
export type SlotState = 'opening' | 'running' | 'frozen' | 'leaving' | 'gone'

/**
 * One room name at this node, from its claim to its end. Its inbox holds what cannot be handled yet. The inbox has two ways out: all of it is
 * forwarded to the next owner, or it is answered by the table of refusals.
 */
export class RoomSlot {
  readonly address: RoomAddress
  readonly environment: RoomEnvironment
  readonly definition: RoomDefinition
  readonly inbox: Inbox
  /** Answers about a room that does not run here. */
  readonly replies: Replies
  readonly #host: RoomHost
  #room: Room | undefined
  #isGone = false

  constructor(
    environment: RoomEnvironment,
    address: RoomAddress,
    definition: RoomDefinition,
    inbox: Inbox,
    host: RoomHost,
  ) {
    this.environment = environment
    this.address = address
    this.definition = definition
    this.inbox = inbox
    this.#host = host
    this.replies = new Replies(address, NO_EPOCH, environment)
  }

  get state(): SlotState {
    if (this.#isGone) return 'gone'
    if (!this.#room) return 'opening'
    if (this.#room.leaving) return 'leaving'
    return this.#room.frozen ? 'frozen' : 'running'
  }

  /** A message from an edge for a room that does not run yet. It waits in the inbox, or is refused if the inbox is full. */
  receive(message: ToOwner, from: string): void {
    const arrival = { message, from }
    if (this.inbox.add(arrival)) return
    this.environment.metrics.backlogFull.inc({ room_type: this.address.roomType })
    const text = unavailableText(this.address, 'it is being opened, and too much waits for it')
    if (!this.replies.turnAway(arrival, nowhere('busy', text))) this.inbox.turnedAway.add(from)
  }

  /** Restores the room that this node has claimed, or makes it, and runs it. */
  begin(claim: Claim, mayMake: boolean): void {
    // No one waits for what follows: a mistake in it harms this room, and not the node.
    this.#begin(claim, mayMake).catch((error) => {
      this.environment.log.error(
        { err: error, room: this.address.name },
        'a room could not be opened, or not for everyone who waited',
      )
      this.#leave()
    })
  }

  async #begin(claim: Claim, mayMake: boolean): Promise<void> {
    if (!this.#host.accepts) {
      await giveBack(this, claim, false)
      this.#forward(undefined)
      return
    }
    const opened = await openRoom(this, claim, mayMake)
    if (opened.at === 'nowhere') this.#refuse(opened)
    else if (opened.at === 'unknown') this.#forward(undefined)
  }

  /** Runs the room under its claim. False: this node takes no more rooms. */
  run(claimed: ClaimedRoom): boolean {
    if (!this.#host.accepts) return false
    this.#room = new Room(claimed, this.inbox, this)
    this.#host.add(this.#room)
    const { epoch, log, memberships } = this.#room.stream
    log.debug({ epoch, members: memberships.size }, 'room opened')
    // Before anything else can arrive.
    this.#room.handleInbox()
    return true
  }

  /** The room is no longer here. The rest of its inbox goes to the node `successor`, or to the next owner. */
  ended(end: RoomEnd, epoch: number, successor: string | undefined): void {
    const { log, metrics } = this.environment
    if (end === 'asleep') metrics.roomsAsleep.inc({ room_type: this.address.roomType })
    // A few a day, and what an operator searches the log for then.
    log[end === 'disposed' || end === 'asleep' ? 'debug' : 'info'](
      { room_id: roomIdOf(this.address), end, epoch, successor },
      'room ended',
    )
    this.#forward(successor)
  }

  /** All that waits goes to `owner`, or to whichever node has the room by then. */
  #forward(owner: string | undefined): void {
    this.#leave()
    this.environment.cluster.router.redirect(this.address, this.inbox, owner)
  }

  /** All that waits is answered, or looks for the room again. */
  #refuse(place: Nowhere): void {
    this.#leave()
    refuseAll(this.inbox, place, this.replies.answer)
    this.#forward(undefined)
  }

  #leave(): void {
    if (this.#isGone) return
    this.#isGone = true
    this.inbox.dropEvents()
    this.#host.remove(this)
  }
}
