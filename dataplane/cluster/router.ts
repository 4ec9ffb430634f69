import { Inbox } from '../inbox.ts'
import {
  ABSENT,
  type Inspection,
  makerOf,
  type Nowhere,
  nowhere,
  refuseAll,
  unavailable,
  unavailableText,
} from '../place.ts'
import { type Arrival, isClose, type RoomAddress, type ToEdge, type ToOwner } from '../traffic.ts'
import type { Claims } from './claims.ts'
import type { ClusterEnvironment, LocalEdge, LocalRooms } from './environment.ts'
import type { NodeLinks } from './links.ts'
import type { ClusterMetrics } from './metrics.ts'
import type { ClusterNodes } from './nodes.ts'
import type { Ownership } from './ownership.ts'
import { canRun, type RoomToRun } from './placement.ts'

/** So long after a store has begun without its data owners may still write their rooms again. */
const ROOMS_REWRITTEN_MS = 15_000

export interface RouterEnvironment
  extends Pick<ClusterEnvironment, 'nodeId' | 'clock' | 'log' | 'maxWaitingMessages' | 'backlogFull'> {
  readonly rooms: () => Pick<LocalRooms, 'has' | 'accepts' | 'receive' | 'open'>
  readonly edge: () => Pick<LocalEdge, 'subscribes'>
  readonly links: Pick<NodeLinks, 'send'>
  readonly metrics: Pick<ClusterMetrics, 'roomTraffic'>
}

/** The ownership that routes by what it knows of rooms and nodes. */
export interface RoutingOwnership extends Pick<Ownership, 'place' | 'deliver'> {
  readonly claims: Pick<Claims, 'inspect'>
  readonly nodes: Pick<ClusterNodes, 'judge' | 'isAlive' | 'isGone' | 'nodes' | 'get' | 'storeIsBehind'>
}

/** Where the messages for one room go. */
interface Route {
  readonly room: RoomAddress
  /** Undefined while it is being found out, or has to be. */
  owner: string | undefined
  /** Of the owner, as far as it was heard of. */
  epoch: number
  /** Whether members wait for what they say to be committed. */
  durable: boolean
  /** What waits for the owner to be found; undefined: no one is looking. */
  inbox: Inbox | undefined
  /** Looks in quick succession, and when the last one began. */
  looks: number
  lookedAt: number
}

/** Rooms that are looked for more often than this within a second are not found by looking harder. */
const QUICK_LOOKS = 4
const FIRST_PAUSE_MS = 20
/** Made once: they are counted by for every message. */
const LOCAL_INPUT = { what: 'input', way: 'local' } as const
const FORWARDED_INPUT = { what: 'input', way: 'bus' } as const
const LONGEST_PAUSE_MS = 500

/**
 * Finds the owner of each room that edges of this node have members in, and takes their messages there: to the rooms of this node, or
 * over the links to another's. A room that no living node owns is opened, here or where there is more space.
 */
export class Router {
  readonly #environment: RouterEnvironment
  readonly #ownership: RoutingOwnership
  readonly #routes = new Map<string, Route>()

  constructor(environment: RouterEnvironment, ownership: RoutingOwnership) {
    this.#environment = environment
    this.#ownership = ownership
  }

  /** A message of this node's edge, or of another's which takes this node for the owner, or wants it to be. */
  send(message: ToOwner, from = this.#environment.nodeId): void {
    const { nodeId, rooms, links, metrics } = this.#environment
    const { nodes } = this.#ownership
    const { room } = message
    const route = this.#routes.get(room.name)
    const owner = route?.owner
    // What came before goes first.
    if (route?.inbox) this.#wait(route.inbox, { message, from })
    else if (rooms().receive(message, from)) {
      if (from === nodeId && message.kind === 'message') metrics.roomTraffic.inc(LOCAL_INPUT)
    } else if (from === nodeId && owner !== undefined && owner !== nodeId && !nodes.isGone(owner)) {
      if (message.kind === 'message') metrics.roomTraffic.inc(FORWARDED_INPUT)
      const gathers = message.kind === 'message' && !route!.durable
      links.send(owner, { to: 'owner', message }, gathers ? 'input' : 'awaited')
    } else if (from !== nodeId && !rooms().accepts) this.#redirect(room, from, null)
    else {
      const inbox = new Inbox(this.#environment.maxWaitingMessages)
      this.#wait(inbox, { message, from })
      this.#look(this.#routeOf(room), inbox)
    }
  }

  /** Messages that the rooms of this node have no place for; `owner`: the node that has the room, as far as is known. */
  redirect(room: RoomAddress, inbox: Inbox, owner: string | undefined): void {
    const { nodeId, rooms, links, edge } = this.#environment
    const { nodes } = this.#ownership
    if (owner !== undefined || !rooms().accepts) this.#sendBack(room, inbox, owner ?? null)
    if (inbox.empty) return
    const isReachable = owner !== undefined && owner !== nodeId && !nodes.isGone(owner)
    const route = this.#routes.get(room.name)
    if (isReachable && edge().subscribes(room.name)) this.#routeOf(room).owner = owner
    if (route?.inbox) for (const arrival of inbox.take()) this.#wait(route.inbox, arrival)
    else if (isReachable) for (const { message } of inbox.take()) links.send(owner, { to: 'owner', message })
    else this.#look(this.#routeOf(room), inbox)
  }

  /** The node that has a room, as far as is known here; undefined: it would have to be found out. */
  ownerOf(room: RoomAddress): string | undefined {
    if (this.#environment.rooms().has(room.name)) return this.#environment.nodeId
    const route = this.#routes.get(room.name)
    return route?.inbox ? undefined : route?.owner
  }

  /** An owner has spoken: `from` has the room, or knows who has. */
  heard({ room, epoch, ...message }: ToEdge, from: string): void {
    const route = this.#routes.get(room.name)
    if (!route || (epoch !== 0 && epoch < route.epoch)) return
    if (message.kind === 'redirect') {
      if (route.owner === from || epoch > 0)
        route.owner = message.owner === from ? from : (message.owner ?? undefined)
      return
    }
    if (epoch === 0) return
    route.owner = from
    route.epoch = epoch
    if (message.kind === 'update') route.durable = message.durable ?? false
  }

  /** No one at this node's edge is in the room any more. */
  forget(room: RoomAddress): void {
    const name = room.name
    if (!this.#routes.get(name)?.inbox) this.#routes.delete(name)
  }

  /** A node is gone: the rooms whose owner it was, which are to be found again. */
  gone(nodeId: string): RoomAddress[] {
    const rooms: RoomAddress[] = []
    for (const route of this.#routes.values()) {
      if (route.owner !== nodeId) continue
      route.owner = undefined
      rooms.push(route.room)
    }
    return rooms
  }

  /** The rooms whose owner is `nodeId`, or any other node when that is undefined. */
  roomsAt(nodeId: string | undefined): RoomAddress[] {
    const self = this.#environment.nodeId
    return [...this.#routes.values()]
      .filter(({ owner }) => owner !== undefined && owner !== self && (owner === nodeId || !nodeId))
      .map(({ room }) => room)
  }

  /** What has no place is asked again by its edge. */
  #wait(inbox: Inbox, arrival: Arrival): void {
    if (!inbox.add(arrival)) this.#environment.backlogFull(arrival.message.room.roomType)
  }

  #routeOf(room: RoomAddress): Route {
    const name = room.name
    let route = this.#routes.get(name)
    if (!route) {
      route = {
        room,
        owner: undefined,
        epoch: 0,
        durable: false,
        inbox: undefined,
        looks: 0,
        lookedAt: Number.NEGATIVE_INFINITY,
      }
      this.#routes.set(name, route)
    }
    return route
  }

  #look(route: Route, inbox: Inbox): void {
    const { clock } = this.#environment
    const now = clock.monotonic()
    route.looks = now - route.lookedAt < 1000 ? route.looks + 1 : 1
    route.lookedAt = now
    route.inbox = inbox
    const find = (): void => {
      this.#find(route, inbox).catch((error: unknown) => {
        this.#environment.log.warn(
          { err: error, room: route.room.name },
          'the owner of a room could not be found',
        )
        this.#nowhere(route, inbox, unavailable(route.room, 'the store does not answer'))
      })
    }
    if (route.looks <= QUICK_LOOKS) find()
    else clock.schedule(Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (route.looks - QUICK_LOOKS)), find)
  }

  async #find(route: Route, inbox: Inbox): Promise<void> {
    const { nodeId, rooms } = this.#environment
    const { claims, nodes } = this.#ownership
    const name = route.room.name
    const seen = await claims.inspect(name)
    const { record: found } = seen
    const owner = found?.owner ?? null
    // A node that is alive only as far as is known is asked all the same: when it is gone, its edge asks again.
    const elsewhere =
      owner !== null && owner !== nodeId && (nodes.isAlive(owner) || (await nodes.judge(owner)) === 'alive')
    const joined = (): boolean => inbox.arrivals.some(({ message }) => makerOf(message) !== undefined)
    // Its owner may not have written it again.
    const mayBeLost = !found && !joined() && (await nodes.storeIsBehind(ROOMS_REWRITTEN_MS))
    const waiting = inbox.arrivals
    const joins = joined()
    // Ending a room needs no code for it, and takes no space.
    const ends = waiting.length > 0 && waiting.every(({ message }) => isClose(message))
    const asked = waiting.some(({ from }) => from !== nodeId)
    if (rooms().has(name)) this.#found(route, inbox, nodeId, 'owner', seen)
    else if (elsewhere) this.#found(route, inbox, owner, 'owner', seen)
    else if (mayBeLost && !joins)
      this.#nowhere(route, inbox, unavailable(route.room, 'the store has lost data'))
    else if (!found && !joins) this.#nowhere(route, inbox, ABSENT)
    else {
      const needs = { roomType: route.room.roomType, stateVersion: found?.stateVersion ?? 1 }
      // A node that was asked by another does not pass it on: the two might do so forever.
      const mine = asked || (owner === nodeId && rooms().accepts)
      const other = (): string | undefined =>
        asked ? undefined : this.#ownership.place(owner === null ? 'create' : 'take_over', needs)
      const fits = mine && this.#isNewEnough(nodeId, needs)
      const target = fits ? nodeId : (other() ?? (ends && rooms().accepts ? nodeId : undefined))
      const old = needs.stateVersion > 1 && !nodes.nodes().some((node) => canRun(node, needs))
      if (target === undefined && old) this.#tooOld(route, inbox, needs.stateVersion)
      else if (target === undefined)
        this.#nowhere(route, inbox, nowhere('no_node', 'no node can take another room at the moment'))
      else this.#found(route, inbox, target, 'opener', seen)
    }
  }

  /** What has waited goes to `owner`, which has the room or is to open it. */
  #found(route: Route, inbox: Inbox, owner: string, to: 'owner' | 'opener', seen: Inspection): void {
    const { nodeId, rooms, links } = this.#environment
    this.#endSearch(route)
    route.owner = owner
    if (owner === nodeId) {
      void rooms().open(route.room, inbox, seen)
      return
    }
    for (const { message } of inbox.remove(({ from }) => from === nodeId)) links.send(owner, { to, message })
    this.#sendBack(route.room, inbox, owner)
  }

  /** Answers the messages that have waited. Those without an answer look for the room again. */
  #nowhere(route: Route, inbox: Inbox, place: Nowhere): void {
    this.#endSearch(route)
    refuseAll(inbox, place, (edge, message) => this.#ownership.deliver(edge, message))
    if (!inbox.empty) this.redirect(route.room, inbox, undefined)
  }

  /** Whether a node's code is not older than the state of a room. */
  #isNewEnough(nodeId: string, needs: RoomToRun): boolean {
    if (needs.stateVersion === 1) return true
    const node = this.#ownership.nodes.get(nodeId)
    return node !== undefined && canRun(node, needs)
  }

  /** The node that could run it has ended, or was rolled back. */
  #tooOld(route: Route, inbox: Inbox, stateVersion: number): void {
    this.#environment.log.warn(
      { room: route.room.name, state_version: stateVersion },
      'no node has code for the state of a room: finish the upgrade',
    )
    const reason = `its state has version ${stateVersion}, and no node has code for that`
    this.#nowhere(route, inbox, nowhere('newer', unavailableText(route.room, reason)))
  }

  /** The search is over. */
  #endSearch(route: Route): void {
    const { name } = route.room
    route.inbox = undefined
    // Other nodes' members are no reason to remember where a room is, and neither are those who have left.
    if (!this.#environment.edge().subscribes(name)) this.#routes.delete(name)
  }

  /**
   * Does not forward the messages of other nodes. Each of these nodes gets one `redirect`, and its edge then asks the owner again for
   * everything that it has open in the room.
   */
  #sendBack(room: RoomAddress, inbox: Inbox, owner: string | null): void {
    const { nodeId } = this.#environment
    const foreign = inbox.remove(({ from }) => from !== nodeId)
    for (const edge of new Set(foreign.map(({ from }) => from))) this.#redirect(room, edge, owner)
  }

  #redirect(room: RoomAddress, edge: string, owner: string | null): void {
    this.#ownership.deliver(edge, { room, epoch: 0, kind: 'redirect', owner })
  }
}
