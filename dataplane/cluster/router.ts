import type { RoomOwner } from '../../shared/store/port.ts'
import { Inbox } from '../inbox.ts'
import {
  ABSENT,
  firstMaker,
  makerOf,
  type Nowhere,
  nowhere,
  type Place,
  unavailable,
  unavailableText,
} from '../place.ts'
import { isClose, type RoomAddress, type ToEdge, type ToOwner, traceOf } from '../traffic.ts'
import type { Claims } from './claims.ts'
import type { PeerMessage } from './envelope.ts'
import type { NodeLinks } from './links.ts'
import type { ClusterMetrics } from './metrics.ts'
import type { ClusterNodes } from './nodes.ts'
import type { ClusterEnvironment, LocalGateway, LocalRooms, Ownership } from './ownership.ts'
import { canRun, type RoomToRun } from './placement.ts'
import type { RoomRequests } from './requests.ts'

/** So long after a store has begun without its data owners may still write their rooms again. */
const ROOMS_REWRITTEN_MS = 15_000

export interface RouterEnvironment
  extends Pick<ClusterEnvironment, 'nodeId' | 'clock' | 'log' | 'maxWaitingMessages'> {
  readonly rooms: () => Pick<
    LocalRooms,
    'has' | 'accepts' | 'receive' | 'typeOf' | 'run' | 'wait' | 'refuse' | 'verify' | 'recheck' | 'edgeMissed'
  >
  readonly gateway: () => LocalGateway
  readonly links: Pick<NodeLinks, 'send'>
  readonly metrics: Pick<ClusterMetrics, 'roomTraffic'>
}

/** The ownership that routes by what it knows of rooms and nodes. */
export interface RoutingOwnership extends Pick<Ownership, 'place' | 'draining' | 'cordoned'> {
  readonly claims: Pick<Claims, 'inspect' | 'claim'>
  readonly nodes: Pick<ClusterNodes, 'judge' | 'isAlive' | 'isGone' | 'nodes' | 'get' | 'storeIsBehind'>
  readonly requests: Pick<RoomRequests, 'receive'>
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
/** Labels of the messages counted. They are made once, since every message is counted. */
const LOCAL_INPUT = { what: 'input', way: 'local' } as const
const FORWARDED_INPUT = { what: 'input', way: 'bus' } as const
const LOCAL_UPDATE = { what: 'update', way: 'local' } as const
const SENT_UPDATE = { what: 'update', way: 'bus' } as const
const LONGEST_PAUSE_MS = 500

/**
 * Carries the messages between edges and the owners of rooms: within this node, or over the links. Finds the owner of each room that the edge of
 * this node has members in. Opens a room that no living node owns, at this node or at one with more space.
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
    if (route?.inbox) rooms().wait(route.inbox, { message, from })
    else if (rooms().receive(message, from)) {
      if (from === nodeId && message.kind === 'message') metrics.roomTraffic.inc(LOCAL_INPUT)
    } else if (from === nodeId && owner !== undefined && owner !== nodeId && !nodes.isGone(owner)) {
      if (message.kind === 'message') metrics.roomTraffic.inc(FORWARDED_INPUT)
      const gathers = message.kind === 'message' && !route!.durable
      links.send(owner, { to: 'owner', message }, gathers ? 'input' : 'awaited')
    } else if (from !== nodeId && !rooms().accepts) this.#redirect(room, from, null)
    else {
      const inbox = new Inbox(this.#environment.maxWaitingMessages)
      rooms().wait(inbox, { message, from })
      this.#look(this.#routeOf(room), inbox)
    }
  }

  /** Sends a message of a room to an edge, at this node or another. */
  deliver(edge: string, message: ToEdge): void {
    const { nodeId, links, metrics } = this.#environment
    if (message.kind === 'update') metrics.roomTraffic.inc(edge === nodeId ? LOCAL_UPDATE : SENT_UPDATE)
    const gathers = message.kind === 'update' && !message.durable
    if (edge !== nodeId) links.send(edge, { to: 'edge', message }, gathers ? 'update' : 'awaited')
    else this.#hear(message, nodeId)
  }

  /** Handles a message of another node. */
  receive(message: PeerMessage, from: string): void {
    const { rooms, gateway, log } = this.#environment
    switch (message.to) {
      case 'owner':
      case 'opener':
        this.send(message.message, from)
        break
      case 'edge':
        if (message.message.kind === 'redirect') rooms().verify(message.message.room.name)
        this.#hear(message.message, from)
        break
      case 'gateway':
        gateway()
          .sessionTaken(message.session_id, message.ended)
          .catch((error: unknown) => {
            log.warn(
              { err: error, session_id: message.session_id },
              'a session that was resumed at another node could not be dropped here',
            )
          })
        break
      case 'host':
        if (!this.#ownership.draining && !this.#ownership.cordoned) void this.open(message.room)
    }
  }

  /**
   * Messages between this node and the node `from` may be lost. Undefined: messages of any node. Edges at both ends ask the owners again for
   * everything that they have open.
   */
  missed(from: string | undefined): void {
    const { nodeId, rooms, gateway } = this.#environment
    if (from === undefined) {
      // A message about a session that was resumed at another node may be lost.
      gateway().storeReturned()
      // Other nodes may have taken this node for dead, and claimed its rooms.
      rooms().recheck()
    }
    // The other node may have taken this one for dead, and sent the joins that wait here to another owner.
    for (const { room, inbox } of this.#routes.values()) if (inbox) this.#sendBackJoins(room, inbox, from)
    for (const room of this.roomsAt(from)) gateway().edge.reattach(room)
    for (const peer of from === undefined ? this.#ownership.nodes.nodes() : [{ node_id: from }])
      if (peer.node_id !== nodeId) rooms().edgeMissed(peer.node_id)
  }

  /** Messages that the rooms of this node have no place for; `owner`: the node that has the room, as far as is known. */
  redirect(room: RoomAddress, inbox: Inbox, owner: string | undefined): void {
    const { nodeId, rooms, links, gateway } = this.#environment
    const { nodes } = this.#ownership
    if (owner !== undefined || !rooms().accepts || inbox.empty) this.#sendBack(room, inbox, owner ?? null)
    else this.#sendBackJoins(room, inbox)
    if (inbox.empty) return
    const isReachable = owner !== undefined && owner !== nodeId && !nodes.isGone(owner)
    const route = this.#routes.get(room.name)
    if (isReachable && gateway().edge.subscribes(room.name)) this.#routeOf(room).owner = owner
    if (route?.inbox) {
      for (const arrival of inbox.take()) rooms().wait(route.inbox, arrival)
      for (const edge of inbox.turnedAway) route.inbox.turnedAway.add(edge)
    } else if (isReachable)
      for (const { message } of inbox.take()) links.send(owner, { to: 'owner', message })
    else this.#look(this.#routeOf(room), inbox)
  }

  /**
   * Opens a room here for no message: its time has come, or another node hands it over. Resolves with its place. Undefined: it runs here, or
   * is being looked for, or this node takes no rooms. Never rejects.
   */
  async open(room: RoomAddress): Promise<Place | undefined> {
    const { rooms, maxWaitingMessages } = this.#environment
    if (!rooms().accepts || rooms().has(room.name) || this.#routes.get(room.name)?.inbox) return undefined
    const route = this.#routeOf(room)
    const inbox = new Inbox(maxWaitingMessages)
    route.inbox = inbox
    return this.#find(route, inbox, this.#claim(room, inbox))
  }

  /** The node that has a room, as far as is known here; undefined: it would have to be found out. */
  ownerOf(room: RoomAddress): string | undefined {
    if (this.#environment.rooms().has(room.name)) return this.#environment.nodeId
    const route = this.#routes.get(room.name)
    return route?.inbox ? undefined : route?.owner
  }

  /** A message of an owner for the edge of this node. */
  #hear(message: ToEdge, from: string): void {
    this.#heard(message, from)
    if (!this.#ownership.requests.receive(message)) this.#environment.gateway().edge.receive(message)
  }

  /** An owner has spoken: `from` has the room, or knows who has. */
  #heard({ room, epoch, ...message }: ToEdge, from: string): void {
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

  /** A node is gone: drops its waiting joins, and returns the rooms whose owner it was, which are to be found again. */
  gone(nodeId: string): RoomAddress[] {
    const rooms: RoomAddress[] = []
    for (const route of this.#routes.values()) {
      // Its sessions resume at other nodes, which ask again.
      route.inbox?.remove(({ message, from }) => message.kind === 'join' && from === nodeId)
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
    const find = (): void => void this.#find(route, inbox, this.#locate(route.room, inbox))
    if (route.looks <= QUICK_LOOKS) find()
    else clock.schedule(Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (route.looks - QUICK_LOOKS)), find)
  }

  /** Takes the inbox to the place of the room. If that fails, the messages that are left are refused. Never rejects. */
  async #find(route: Route, inbox: Inbox, search: Promise<Place>): Promise<Place> {
    const { log } = this.#environment
    const { room } = route
    try {
      const place = await search
      this.#arrive(route, inbox, place)
      return place
    } catch (err) {
      log.warn({ err, room: room.name }, 'the owner of a room could not be found')
    }
    const place = unavailable(room, 'the store does not answer')
    try {
      this.#arrive(route, inbox, place)
    } catch (err) {
      log.error({ err, room: room.name }, 'the messages of a room could not be refused')
    }
    return place
  }

  /** Where the room is. A room without a living owner is claimed if it is to be here. */
  async #locate(room: RoomAddress, inbox: Inbox): Promise<Place> {
    const { nodeId, rooms } = this.#environment
    const { claims, nodes } = this.#ownership
    if (this.#makes(room, inbox)) {
      const place = await this.#claim(room, inbox)
      // Another node may have the code for its state.
      if (place.at !== 'nowhere' || place.why !== 'newer') return place
    }
    const found = await claims.inspect(room.name)
    const owner = found?.owner ?? null
    // A node that is alive only as far as is known is asked all the same: when it is gone, its edge asks again.
    const elsewhere =
      owner !== null && owner !== nodeId && (nodes.isAlive(owner) || (await nodes.judge(owner)) === 'alive')
    if (elsewhere) return { at: 'node', nodeId: owner }
    const joins = (): boolean => inbox.arrivals.some(({ message }) => makerOf(message) !== undefined)
    // Its owner may not have written it again.
    const mayBeLost = !found && !joins() && (await nodes.storeIsBehind(ROOMS_REWRITTEN_MS))
    if (!found && !joins()) return mayBeLost ? unavailable(room, 'the store has lost data') : ABSENT
    const waiting = inbox.arrivals
    // Ending a room needs no code for it, and takes no space.
    const ends = waiting.length > 0 && waiting.every(({ message }) => isClose(message))
    const asked = waiting.some(({ from }) => from !== nodeId)
    const needs = { roomType: room.roomType, stateVersion: found?.stateVersion ?? 1 }
    // A node that was asked by another does not pass it on: the two might do so forever.
    const mine = asked || (owner === nodeId && rooms().accepts)
    const other = (): string | undefined =>
      asked ? undefined : this.#ownership.place(owner === null ? 'create' : 'take_over', needs)
    const fits = mine && this.#isNewEnough(nodeId, needs)
    const target = fits ? nodeId : (other() ?? (ends && rooms().accepts ? nodeId : undefined))
    if (target === nodeId) return this.#claim(room, inbox, found)
    if (target !== undefined) return { at: 'node', nodeId: target, opens: true }
    if (needs.stateVersion > 1 && !nodes.nodes().some((node) => canRun(node, needs)))
      return this.#tooOld(room, needs.stateVersion)
    return nowhere('no_node', 'no node can take another room at the moment')
  }

  /** True: this node makes the room if it is nowhere. Then the claim asks for the owner. */
  #makes({ roomType }: RoomAddress, { arrivals }: Inbox): boolean {
    const { nodeId, rooms } = this.#environment
    const makers = arrivals.flatMap(({ message }) => makerOf(message) ?? [])
    if (!rooms().accepts || makers.every(({ create }) => create === false)) return false
    const needs = { roomType, stateVersion: 1 }
    const self = this.#ownership.nodes.get(nodeId)
    if (!self || !canRun(self, needs)) return false
    // A node that was asked by another does not pass it on.
    const asked = arrivals.some(({ from }) => from !== nodeId)
    return asked || this.#ownership.place('create', needs) === nodeId
  }

  /** `seen`: the record of the room, if it was read before. Never rejects. */
  async #claim(room: RoomAddress, inbox: Inbox, seen?: RoomOwner): Promise<Place> {
    const type = this.#environment.rooms().typeOf(room.roomType)
    const isUnknown = 'at' in type
    // Operators end rooms for which there is no code.
    if (isUnknown && !inbox.arrivals.some(({ message }) => isClose(message))) return type
    const first = isUnknown ? undefined : firstMaker(inbox)
    // Only the owner of a room can find out whether `load` brings it.
    const maker = first?.create === false && !isUnknown && !type.load ? undefined : first
    const place = await this.#ownership.claims.claim(room.name, {
      creator: maker?.principal,
      seen,
      // Taking what is not stored from an owner that lives would end it.
      byLease: !isUnknown && type.durability === 'none',
      stateVersion: isUnknown ? Number.POSITIVE_INFINITY : type.version,
      // More may come while the room is claimed.
      askedBy: () => inbox.arrivals.flatMap(({ message }) => traceOf(message) ?? []),
    })
    return place.at === 'nowhere' && maker ? { ...place, maker: maker.member_id } : place
  }

  /** The search is over: what has waited goes to the room, or is answered. What has no answer looks for the room again. */
  #arrive(route: Route, inbox: Inbox, place: Place): void {
    const { nodeId, rooms, gateway, links } = this.#environment
    const { room } = route
    route.inbox = undefined
    // Other nodes' members are no reason to remember where a room is, and neither are those who have left.
    if (!gateway().edge.subscribes(room.name)) this.#routes.delete(room.name)
    if (place.at === 'here') {
      route.owner = nodeId
      rooms().run(room, inbox, place)
      return
    }
    if (place.at === 'node') route.owner = place.nodeId
    if (place.at === 'node' && place.opens) {
      for (const { message } of inbox.remove(({ from }) => from === nodeId))
        links.send(place.nodeId, { to: 'opener', message })
      this.#sendBack(room, inbox, place.nodeId)
    } else if (place.at === 'node') {
      this.redirect(room, inbox, place.nodeId)
    } else {
      rooms().refuse(room, inbox, place)
      this.redirect(room, inbox, undefined)
    }
  }

  /** Whether a node's code is not older than the state of a room. */
  #isNewEnough(nodeId: string, needs: RoomToRun): boolean {
    if (needs.stateVersion === 1) return true
    const node = this.#ownership.nodes.get(nodeId)
    return node !== undefined && canRun(node, needs)
  }

  /** The node that could run it has ended, or was rolled back. */
  #tooOld(room: RoomAddress, stateVersion: number): Nowhere {
    this.#environment.log.warn(
      { room: room.name, state_version: stateVersion },
      'no node has code for the state of a room: finish the upgrade',
    )
    const reason = `its state has version ${stateVersion}, and no node has code for that`
    return nowhere('newer', unavailableText(room, reason))
  }

  /**
   * Does not forward the messages of other nodes. Each of these nodes gets one `redirect`, and so does each edge with messages that had no
   * place. The edge then asks the owner again for everything that it has open in the room.
   */
  #sendBack(room: RoomAddress, inbox: Inbox, owner: string | null): void {
    const { nodeId } = this.#environment
    const foreign = inbox.remove(({ from }) => from !== nodeId)
    const edges = new Set([...inbox.turnedAway, ...foreign.map(({ from }) => from)])
    inbox.turnedAway.clear()
    for (const edge of edges) this.#redirect(room, edge, owner)
  }

  /**
   * Drops the waiting joins of the node `from`, or of all other nodes. Each of these nodes gets one `redirect`, and asks again for the joins that are
   * still open. A join that another owner has answered would take a seat again that has ended since, or end the seat that the session has now.
   */
  #sendBackJoins(room: RoomAddress, inbox: Inbox, from?: string): void {
    const { nodeId } = this.#environment
    const joins = inbox.remove(
      (arrival) =>
        arrival.message.kind === 'join' && arrival.from !== nodeId && (from ?? arrival.from) === arrival.from,
    )
    for (const edge of new Set(joins.map((join) => join.from))) this.#redirect(room, edge, null)
  }

  #redirect(room: RoomAddress, edge: string, owner: string | null): void {
    this.deliver(edge, { room, epoch: 0, kind: 'redirect', owner })
  }
}
