import type { Inbox } from '../inbox.ts'
import {
  firstMaker,
  type Inspection,
  type Maker,
  type Nowhere,
  nowhere,
  type Place,
  refuseAll,
  unavailable,
  unavailableText,
} from '../place.ts'
import { type RoomAddress, roomIdOf, type ToOwner, traceOf } from '../traffic.ts'
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
 * State of a room name at the node that owns it, or is about to. `opening`: messages wait while the room is claimed and restored or made.
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

  /** A message from an edge. It is handled, waits in the inbox, or is refused if that is full. */
  receive(message: ToOwner, from: string): void {
    if (this.#room) {
      this.#room.receive(message, from)
      return
    }
    const arrival = { message, from }
    if (this.inbox.add(arrival)) return
    this.environment.metrics.backlogFull.inc({ room_type: this.address.roomType })
    const text = unavailableText(this.address, 'it is being opened, and too much waits for it')
    if (!this.replies.turnAway(arrival, nowhere('busy', text))) this.inbox.turnedAway.add(from)
  }

  /**
   * Claims the room and runs it: a join makes a new one, other messages and joins with `create: false` only find one that was. `seen`: what the store has said about it.
   * Resolves with the result of the claim. Never rejects.
   */
  async open(seen: Inspection | undefined): Promise<Place> {
    const first = firstMaker(this.inbox)
    // Only the owner of a room can find out whether `load` brings it.
    const maker = first?.create === false && !this.definition.load ? undefined : first
    const place = await this.#claim(maker?.principal, seen)
    // No one waits for what follows: a mistake in it harms this room, and not the node.
    this.#begin(place, maker).catch((error) => {
      this.environment.log.error(
        { err: error, room: this.address.name },
        'a room could not be opened, or not for everyone who waited',
      )
      this.#leave()
    })
    return place
  }

  async #claim(creator: string | undefined, seen: Inspection | undefined): Promise<Place> {
    const { cluster, log } = this.environment
    const { name } = this.address
    try {
      return await cluster.claims.claim(name, {
        creator,
        seen,
        // Taking what is not stored from an owner that lives would end it.
        byLease: this.definition.durability === 'none',
        stateVersion: this.definition.version,
        // More may come while the room is asked for.
        askedBy: () => this.inbox.arrivals.flatMap(({ message }) => traceOf(message) ?? []),
      })
    } catch (error) {
      log.warn({ err: error, room: name }, 'a room could not be claimed')
      return unavailable(this.address, 'the store does not answer')
    }
  }

  /** `maker`: the join that the room was claimed for. */
  async #begin(place: Place, maker: Maker | undefined): Promise<void> {
    if (place.at === 'node') this.#forward(place.nodeId)
    else if (place.at === 'nowhere') this.#refuse(maker ? { ...place, maker: maker.member_id } : place)
    else if (!this.#host.accepts) {
      await giveBack(this, place.claim, false)
      this.#forward(undefined)
    } else {
      const opened = await openRoom(this, place.claim, maker !== undefined)
      if (opened.at === 'nowhere') this.#refuse(opened)
      else if (opened.at === 'unknown') this.#forward(undefined)
    }
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
    const { cluster } = this.environment
    const { turnedAway } = this.inbox
    for (const edge of turnedAway)
      cluster.deliver(edge, { room: this.address, epoch: 0, kind: 'redirect', owner: owner ?? null })
    turnedAway.clear()
    if (!this.inbox.empty) cluster.router.redirect(this.address, this.inbox, owner)
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
