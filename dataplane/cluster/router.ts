import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { NodeInfo } from '../../shared/node-registry.ts'
import { type Rate, RateLimit } from '../../shared/rate-limit.ts'
import type { RoomOwner } from '../../shared/store/port.ts'
import { Inbox } from '../inbox.ts'
import {
  ABSENT,
  type Claimed,
  type ClaimedType,
  type ClaimOptions,
  firstMaker,
  makerOf,
  type Nowhere,
  nowhere,
  type Place,
  unavailable,
  unavailableText,
} from '../place.ts'
import {
  type Arrival,
  isClose,
  type LocalSeat,
  type RequestAnswer,
  type RoomAddress,
  type ToEdge,
  type ToOwner,
  traceOf,
} from '../traffic.ts'
import type { PeerMessage } from './envelope.ts'
import type { ClusterMetrics } from './metrics.ts'
import { canRun, type PlacementReason, type RoomToPlace, type RoomToRun } from './placement.ts'

/** Time after a restart of the store without its data in which owners may still write their rooms again. */
const ROOMS_REWRITTEN_MS = 15_000

/** Dependencies of `Router`. */
export interface RouterEnvironment {
  readonly nodeId: string
  readonly links: {
    send(to: string, message: PeerMessage, urgency?: 'awaited' | 'update' | 'input'): void
    /** Drops the state of a node that is gone. */
    forget(nodeId: string): void
    /** Lets a node that is new or has returned find out whether messages were lost. */
    greet(nodeId: string): void
  }
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: { readonly roomTraffic: ClusterMetrics['roomTraffic'] }
  /** Maximum number of messages that wait for one room while the node looks for its owner. */
  readonly maxWaitingMessages: number
}

/** The parts that decide where rooms run. */
export interface RouterParts {
  /** This node (`Self`). */
  readonly self: { readonly draining: boolean; readonly cordoned: boolean }
  /** The nodes of the cluster (`ClusterNodes`). */
  readonly nodes: {
    get(nodeId: string): NodeInfo | undefined
    nodes(): readonly NodeInfo[]
    isAlive(nodeId: string): boolean
    isGone(nodeId: string): boolean
    judge(nodeId: string): Promise<'alive' | 'dead'>
    storeIsBehind(ms: number): Promise<boolean>
  }
  readonly claims: {
    inspect(room: string): Promise<RoomOwner | undefined>
    claim(room: string, options: ClaimOptions): Promise<Place>
  }
  readonly placement: { choose(reason: PlacementReason, room: RoomToPlace): string | undefined }
}

/** The host of the rooms of this node (`RoomHost`), as the router uses it. */
export interface LocalHost {
  readonly rooms: {
    /** True while this node opens rooms. */
    readonly accepts: boolean
    /** Returns true if a room (`project/type:key`) runs here, or is being opened under the claim of this node. */
    has(name: string): boolean
  }
  readonly types: {
    /** Returns the room type, or the answer to messages of a type that is not installed. */
    find(roomType: string): ClaimedType | Nowhere
  }
  /** False: the room neither runs here nor is being opened. */
  receive(message: ToOwner, from: string): boolean
  /** Returns the seat of a member at `edge`. Undefined: its room (`project/type:key`) does not run here, or does not know it. */
  seat(name: string, memberId: string, edge: string): LocalSeat | undefined
  /** Runs a room that this node has claimed, for the messages in the inbox. Ends a room whose type is not installed. */
  run(room: RoomAddress, inbox: Inbox, claimed: Claimed): void
  /** Adds a message to the inbox of a room that does not run. If the inbox is full, the message is refused, or its edge sends it again. */
  wait(inbox: Inbox, arrival: Arrival): void
  /** Answers the messages for a room that is nowhere. Messages that look for the room again stay in the inbox. */
  refuse(room: RoomAddress, inbox: Inbox, place: Nowhere): void
  /** Lets each room read its record: another node may have taken it over, or the store may have lost it. */
  recheck(): void
  /** Lets one room (`project/type:key`) read its record: another node says that it owns the room. */
  verify(name: string): void
  /** A node has ended or died, and the sockets of the members there are closed. */
  edgeGone(nodeId: string): void
  /** Messages to a node may be lost. The rooms here ask it to attach its members again. */
  edgeMissed(nodeId: string): void
}

/** The sockets of this node (`Gateway`), as the router uses them. */
export interface LocalGateway {
  readonly edge: {
    /** Handles a message of an owner for members here. */
    receive(message: ToEdge): void
    /** Asks the owner of the room again for everything that members here have missed. */
    reattach(room: RoomAddress): void
    /** Returns true if sessions here have seats in a room (`project/type:key`). */
    subscribes(room: string): boolean
  }
  /** The session was resumed at another node, or `ended` there by an operator. */
  sessionTaken(sessionId: string, ended: boolean): Promise<void>
  /** The store answers again. Messages over it may be lost. */
  storeReturned(): void
}

/** The requests of this node to rooms (`RoomRequests`). */
interface LocalRequests {
  answered(id: string, answer: RequestAnswer): void
  moved(room: RoomAddress): void
}

/** Location of one room, as far as the router knows. */
interface Route {
  readonly room: RoomAddress
  /** Node id of the owner. Undefined: unknown. */
  owner: string | undefined
  /** The highest epoch that was seen from the owner. */
  epoch: number
  /** True if acks of the room wait for a commit. Its messages are then sent without delay. */
  durable: boolean
  /** Messages that wait for the search for the owner. Undefined: no search is running. */
  inbox: Inbox | undefined
  /** Rate of searches. */
  readonly searches: RateLimit
}

/**
 * Searches for the owner of one room. A takeover rarely takes more than two, also with a redirect, so the burst covers several in a row. A room
 * that is not found then costs the store two reads a second.
 */
const SEARCH_RATE: Rate = { perSecond: 2, burst: 8 }
/** Label objects are created once, because every message is counted. */
const LOCAL_INPUT = { what: 'input', way: 'local' } as const
const FORWARDED_INPUT = { what: 'input', way: 'bus' } as const
const LOCAL_UPDATE = { what: 'update', way: 'local' } as const
const SENT_UPDATE = { what: 'update', way: 'bus' } as const

/**
 * Routes messages between edges and the owners of rooms, within this node or over the links. Finds the owner of each room with members at this
 * node's edge. Opens a room that no living node owns, at this node or at one with more capacity.
 */
export class Router {
  readonly #environment: RouterEnvironment
  readonly #parts: RouterParts
  readonly #routes = new Map<string, Route>()
  // Set by `start`.
  #host!: LocalHost
  #gateway!: LocalGateway
  #requests!: LocalRequests

  constructor(environment: RouterEnvironment, parts: RouterParts) {
    this.#environment = environment
    this.#parts = parts
  }

  /** Sets the receivers of messages to this node. To be called before any other method. */
  start(host: LocalHost, gateway: LocalGateway, requests: LocalRequests): void {
    this.#host = host
    this.#gateway = gateway
    this.#requests = requests
  }

  /** Sends a message of an edge to the owner of its room. `from`: another node, which assumes that this node owns the room or should open it. */
  send(message: ToOwner, from = this.#environment.nodeId): void {
    const { nodeId, links, metrics } = this.#environment
    const { nodes } = this.#parts
    const { room } = message
    const route = this.#routes.get(room.name)
    const owner = route?.owner
    // Behind the messages that already wait.
    if (route?.inbox) this.#host.wait(route.inbox, { message, from })
    else if (this.#host.receive(message, from)) {
      if (from === nodeId && message.kind === 'message') metrics.roomTraffic.inc(LOCAL_INPUT)
    } else if (from === nodeId && owner !== undefined && owner !== nodeId && !nodes.isGone(owner)) {
      if (message.kind === 'message') metrics.roomTraffic.inc(FORWARDED_INPUT)
      const gathers = message.kind === 'message' && !route!.durable
      links.send(owner, { to: 'owner', message }, gathers ? 'input' : 'awaited')
    } else if (from !== nodeId && !this.#host.rooms.accepts) this.#redirect(room, from, null)
    else {
      const inbox = new Inbox(this.#environment.maxWaitingMessages)
      this.#host.wait(inbox, { message, from })
      this.#search(this.#routeOf(room), inbox)
    }
  }

  /** Returns the seat of a member of this node's edge, if its room runs here. */
  seat(room: RoomAddress, memberId: string): LocalSeat | undefined {
    return this.#host.seat(room.name, memberId, this.#environment.nodeId)
  }

  /** Sends a message of a room to an edge, at this node or another. */
  deliver(edge: string, message: ToEdge): void {
    const { nodeId, links, metrics } = this.#environment
    if (message.kind === 'update') metrics.roomTraffic.inc(edge === nodeId ? LOCAL_UPDATE : SENT_UPDATE)
    const gathers = message.kind === 'update' && !message.durable
    if (edge !== nodeId) links.send(edge, { to: 'edge', message }, gathers ? 'update' : 'awaited')
    else this.#deliverHere(message, nodeId)
  }

  /** Handles a message of another node. */
  receive(message: PeerMessage, from: string): void {
    const { self } = this.#parts
    switch (message.to) {
      case 'owner':
      case 'opener':
        this.send(message.message, from)
        break
      case 'edge':
        if (message.message.kind === 'redirect') this.#host.verify(message.message.room.name)
        this.#deliverHere(message.message, from)
        break
      case 'gateway':
        this.#gateway.sessionTaken(message.session_id, message.ended).catch((error: unknown) => {
          const { log } = this.#environment
          log.warn({ err: error, session_id: message.session_id }, 'drop of a moved session failed')
        })
        break
      case 'host':
        if (!self.draining && !self.cordoned) void this.open(message.room)
    }
  }

  /**
   * Messages between this node and node `from` may be lost. Undefined: messages of any node. The edges at both ends send their open questions to
   * the owners again.
   */
  missed(from: string | undefined): void {
    const { nodeId } = this.#environment
    if (from === undefined) {
      // A message about a session that was resumed at another node may be lost.
      this.#gateway.storeReturned()
      // Other nodes may have presumed this node dead, and claimed its rooms.
      this.#host.recheck()
    }
    // The other node may have presumed this one dead, and sent the joins that wait here to another owner.
    for (const { room, inbox } of this.#routes.values()) if (inbox) this.#sendBackJoins(room, inbox, from)
    this.#reattachAt(from)
    for (const peer of from === undefined ? this.#parts.nodes.nodes() : [{ node_id: from }])
      if (peer.node_id !== nodeId) this.#host.edgeMissed(peer.node_id)
  }

  /** Routes messages of a room that does not run here any more. `owner`: the room's node, as far as is known. */
  redirect(room: RoomAddress, inbox: Inbox, owner: string | undefined): void {
    const { nodeId, links } = this.#environment
    const { nodes } = this.#parts
    const staysHere = owner === undefined && this.#host.rooms.accepts
    if (staysHere) this.#sendBackJoins(room, inbox)
    if (!staysHere || inbox.empty) this.#sendBack(room, inbox, owner ?? null)
    if (inbox.empty) return
    const isReachable = owner !== undefined && owner !== nodeId && !nodes.isGone(owner)
    const route = this.#routes.get(room.name)
    if (isReachable && this.#gateway.edge.subscribes(room.name)) this.#routeOf(room).owner = owner
    if (route?.inbox) {
      for (const arrival of inbox.take()) this.#host.wait(route.inbox, arrival)
      for (const edge of inbox.turnedAway) route.inbox.turnedAway.add(edge)
    } else if (isReachable)
      for (const { message } of inbox.take()) links.send(owner, { to: 'owner', message })
    else this.#search(this.#routeOf(room), inbox)
  }

  /**
   * Opens a room here without a message, because its alarm is due or another node hands it over. Resolves with its place. Undefined: it runs
   * here, a search for it is running, or this node accepts no rooms. Never rejects.
   */
  async open(room: RoomAddress): Promise<Place | undefined> {
    const { maxWaitingMessages } = this.#environment
    if (!this.#host.rooms.accepts || this.#host.rooms.has(room.name) || this.#routes.get(room.name)?.inbox)
      return undefined
    const route = this.#routeOf(room)
    const inbox = new Inbox(maxWaitingMessages)
    route.inbox = inbox
    return this.#find(route, inbox, this.#claim(room, inbox))
  }

  /** Asks another node with the code and space for a room to open it. False: there is no such node. */
  openElsewhere(room: RoomAddress, stateVersion: number): boolean {
    const { links, nodeId } = this.#environment
    const other = this.#parts.placement.choose('take_over', { ...room, stateVersion })
    if (other === undefined || other === nodeId) return false
    links.send(other, { to: 'host', room })
    return true
  }

  /** Returns the owner of a room, as far as is known here. Undefined: unknown. */
  ownerOf(room: RoomAddress): string | undefined {
    if (this.#host.rooms.has(room.name)) return this.#environment.nodeId
    const route = this.#routes.get(room.name)
    return route?.inbox ? undefined : route?.owner
  }

  /** Passes a message of an owner to the edge of this node, or the answer to a request to its sender. */
  #deliverHere(message: ToEdge, from: string): void {
    this.#learnOwner(message, from)
    if (message.kind === 'answer') {
      this.#requests.answered(message.member_id, message.answer)
      return
    }
    if (message.kind === 'redirect') this.#requests.moved(message.room)
    this.#gateway.edge.receive(message)
  }

  /** Learns the owner of a room from its message: it is `from`, or the node that a redirect names. */
  #learnOwner(message: ToEdge, from: string): void {
    const { room, epoch } = message
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

  /** Drops the route of a room, because no session at this node's edge is in it any more. */
  forget(room: RoomAddress): void {
    const name = room.name
    if (!this.#routes.get(name)?.inbox) this.#routes.delete(name)
  }

  /**
   * A node has ended or died. Drops its waiting joins, and clears it as an owner. The edge of this node looks for the new owners of its rooms.
   */
  gone(nodeId: string): void {
    this.#environment.links.forget(nodeId)
    const rooms: RoomAddress[] = []
    for (const route of this.#routes.values()) {
      // Its sessions resume at other nodes, which ask again.
      route.inbox?.remove(({ message, from }) => message.kind === 'join' && from === nodeId)
      if (route.owner !== nodeId) continue
      route.owner = undefined
      rooms.push(route.room)
    }
    for (const room of rooms) this.#gateway.edge.reattach(room)
    this.#host.edgeGone(nodeId)
  }

  /**
   * A node is alive that was not, or that this node did not know. This node may have considered it dead, and the other does not know that. So
   * edges at both ends ask again for everything they have open.
   */
  joined({ node_id: peer, version }: NodeInfo): void {
    const { links, log } = this.#environment
    log.info({ peer, version }, 'a node is in the cluster')
    links.greet(peer)
    this.#reattachAt(peer)
  }

  /** Lets the edge of this node ask again for the rooms with owner `nodeId`. Undefined: for the rooms of all other nodes. */
  #reattachAt(nodeId: string | undefined): void {
    const self = this.#environment.nodeId
    const rooms = [...this.#routes.values()].filter(
      ({ owner }) => owner !== undefined && owner !== self && (owner === nodeId || !nodeId),
    )
    for (const { room } of rooms) this.#gateway.edge.reattach(room)
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
        searches: new RateLimit(this.#environment.clock, SEARCH_RATE),
      }
      this.#routes.set(name, route)
    }
    return route
  }

  #search(route: Route, inbox: Inbox): void {
    route.inbox = inbox
    const find = (): void => void this.#find(route, inbox, this.#locate(route.room, inbox))
    const waitMs = route.searches.waitMs()
    route.searches.charge(1)
    if (waitMs > 0) this.#environment.clock.schedule(waitMs, find)
    else find()
  }

  /** Brings the messages of an inbox to the place of the room. If the search fails, they are refused. Never rejects. */
  async #find(route: Route, inbox: Inbox, search: Promise<Place>): Promise<Place> {
    const { log } = this.#environment
    const { room } = route
    try {
      const place = await search
      this.#arrive(route, inbox, place)
      return place
    } catch (err) {
      log.warn({ err, room: room.name }, 'search for the owner of a room failed')
    }
    const place = unavailable(room, 'the store does not answer')
    try {
      this.#arrive(route, inbox, place)
    } catch (err) {
      log.error({ err, room: room.name }, 'refusal of the messages of a room failed')
    }
    return place
  }

  /** Returns the place of the room. A room without a living owner is claimed if this node should run it. */
  async #locate(room: RoomAddress, inbox: Inbox): Promise<Place> {
    const { nodeId } = this.#environment
    const { claims, nodes, placement } = this.#parts
    if (this.#makes(room, inbox)) {
      const place = await this.#claim(room, inbox)
      // Another node may have code for its state.
      if (place.at !== 'nowhere' || place.why !== 'newer') return place
    }
    const found = await claims.inspect(room.name)
    const owner = found?.owner ?? null
    // The last known state of a node is enough: if it is gone, the edge repeats its question.
    const elsewhere =
      owner !== null && owner !== nodeId && (nodes.isAlive(owner) || (await nodes.judge(owner)) === 'alive')
    if (elsewhere) return { at: 'node', nodeId: owner }
    const joins = (): boolean => inbox.arrivals.some(({ message }) => makerOf(message) !== undefined)
    // After a loss of data, its owner may not have written it again yet.
    const mayBeLost = !found && !joins() && (await nodes.storeIsBehind(ROOMS_REWRITTEN_MS))
    if (!found && !joins()) return mayBeLost ? unavailable(room, 'the store has lost data') : ABSENT
    const waiting = inbox.arrivals
    // A close needs no code for the room type, and no capacity.
    const ends = waiting.length > 0 && waiting.every(({ message }) => isClose(message))
    const asked = waiting.some(({ from }) => from !== nodeId)
    const needs = { ...room, stateVersion: found?.stateVersion ?? 1 }
    // A message from another node is not passed on: two nodes might pass it to each other forever.
    const mine = asked || (owner === nodeId && this.#host.rooms.accepts)
    const other = (): string | undefined =>
      asked ? undefined : placement.choose(owner === null ? 'create' : 'take_over', needs)
    const fits = mine && this.#isNewEnough(nodeId, needs)
    const target = fits ? nodeId : (other() ?? (ends && this.#host.rooms.accepts ? nodeId : undefined))
    if (target === nodeId) return this.#claim(room, inbox, found)
    if (target !== undefined) return { at: 'node', nodeId: target, opens: true }
    if (needs.stateVersion > 1 && !nodes.nodes().some((node) => canRun(node, needs)))
      return this.#tooOld(room, needs.stateVersion)
    return nowhere('no_node', 'no node can take another room at the moment')
  }

  /** Returns true if this node should create the room if it does not exist. The claim then finds the owner, if there is one. */
  #makes(room: RoomAddress, { arrivals }: Inbox): boolean {
    const { nodeId } = this.#environment
    const makers = arrivals.flatMap(({ message }) => makerOf(message) ?? [])
    if (!this.#host.rooms.accepts || makers.every(({ create }) => create === false)) return false
    const needs = { ...room, stateVersion: 1 }
    const self = this.#parts.nodes.get(nodeId)
    if (!self || !canRun(self, needs)) return false
    // A message from another node is not passed on.
    const asked = arrivals.some(({ from }) => from !== nodeId)
    return asked || this.#parts.placement.choose('create', needs) === nodeId
  }

  /** Claims the room. `seen`: its record, if it was read before. Never rejects. */
  async #claim(room: RoomAddress, inbox: Inbox, seen?: RoomOwner): Promise<Place> {
    const type = this.#host.types.find(room.roomType)
    const isUnknown = 'at' in type
    // Operators can close rooms of an unknown type.
    if (isUnknown && !inbox.arrivals.some(({ message }) => isClose(message))) return type
    const first = isUnknown ? undefined : firstMaker(inbox)
    // Only the room's owner can find out whether `load` returns a state.
    const maker = first?.create === false && !isUnknown && !type.load ? undefined : first
    const place = await this.#parts.claims.claim(room.name, {
      creator: maker?.principal,
      seen,
      // A room with durability 'none' has no stored copy. Claiming it from a live owner would destroy its state.
      byLease: !isUnknown && type.durability === 'none',
      stateVersion: isUnknown ? Number.POSITIVE_INFINITY : type.version,
      // Evaluated later: more messages may arrive during the claim.
      askedBy: () => inbox.arrivals.flatMap(({ message }) => traceOf(message) ?? []),
    })
    // If the dead owner lives, this message makes it check the room's record.
    if (place.at === 'here' && place.from !== undefined)
      this.#redirect(room, place.from, this.#environment.nodeId)
    return place.at === 'nowhere' && maker ? { ...place, maker: maker.member_id } : place
  }

  /** Ends a search: the queued messages go to the room, or are answered. Messages without an answer start another search. */
  #arrive(route: Route, inbox: Inbox, place: Place): void {
    const { nodeId, links } = this.#environment
    const { room } = route
    route.inbox = undefined
    // A route is kept only while clients at this node's edge use the room.
    if (!this.#gateway.edge.subscribes(room.name)) this.#routes.delete(room.name)
    if (place.at === 'here') {
      route.owner = nodeId
      this.#host.run(room, inbox, place)
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
      this.#host.refuse(room, inbox, place)
      this.redirect(room, inbox, undefined)
    }
  }

  /** Returns true if a node's code is not older than the state of a room. */
  #isNewEnough(nodeId: string, needs: RoomToRun): boolean {
    if (needs.stateVersion === 1) return true
    const node = this.#parts.nodes.get(nodeId)
    return node !== undefined && canRun(node, needs)
  }

  /** Refusal for a room whose state is too new for every node, because that node has ended or was rolled back. */
  #tooOld(room: RoomAddress, stateVersion: number): Nowhere {
    this.#environment.log.warn(
      { room: room.name, state_version: stateVersion },
      'no node has code for the state of a room: finish the upgrade',
    )
    const reason = `its state has version ${stateVersion}, and no node has code for that`
    return nowhere('newer', unavailableText(room, reason))
  }

  /**
   * Sends back messages of other nodes. Each of these nodes, and each edge whose messages did not fit, gets one `redirect`. The edge then sends
   * its open questions about the room to the owner again.
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
