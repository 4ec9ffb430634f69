import { type Clock, sleep } from '../../shared/clock.ts'
import { nodeName } from '../../shared/ids.ts'
import type { Logger } from '../../shared/log.ts'
import {
  type Claim,
  type Locks,
  type RoomOwner,
  type RoomQuota,
  type RoomRecords,
  StoreUnavailable,
} from '../../shared/store/port.ts'
import type { Tracer } from '../../shared/tracing/tracer.ts'
import {
  ABSENT,
  type ClaimOptions,
  isEmpty,
  type Nowhere,
  nowhere,
  type Place,
  QUEUE_PRINCIPALS,
  unavailable,
  unavailableText,
} from '../place.ts'
import { roomAttributes, roomNamed } from '../traffic.ts'
import type { ClaimOutcome, ClusterMetrics } from './metrics.ts'

/** Dependencies of `Claims`. */
export interface ClaimsEnvironment {
  readonly nodeId: string
  readonly store: { readonly rooms: RoomRecords; readonly locks: Locks }
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: ClusterMetrics
  readonly tracer: Tracer
  /** Lifetime of a room's record after its last write, in milliseconds. */
  readonly recordTtlMs: number
  /** Maximum numbers of rooms that may be made. */
  readonly quota: RoomQuota
}

/** The lease of this node (`NodeLease`). */
interface Lease {
  valid(): boolean
}

/** The nodes of the cluster (`ClusterNodes`), as far as claims depend on them. */
interface KnownNodes {
  readonly claimsAllowedAt: number
  isAlive(nodeId: string): boolean
  listenedAt(nodeId: string): number | undefined
  judge(nodeId: string, byLease?: boolean): Promise<'alive' | 'dead'>
}

/** Reasons why a claim ends without a room. */
type RefusedClaim = Exclude<ClaimOutcome, 'claimed' | 'taken_over' | 'elsewhere'>
type ClaimPlace = Place<RefusedClaim>

/** Maximum time for which a claim waits until claims are allowed. */
const WAIT_MS = 10_000
/** Pause before the next attempt if claims were not allowed when the command was sent. */
const AGAIN_MS = 500
/** A recovery takes two short store commands, so no claim waits longer than this for the recovery of another node. */
const LOCK = { ttlMs: 2000, waitMs: 2000 }
/** Maximum number of waiting joins and resumes to which the span of a takeover is linked. */
const MOST_LINKS = 32
/** Interval of the checks whether claims are allowed, while the time for that is unknown. */
const CLAIMS_ALLOWED_CHECK_MS = 100

/** Makes this node the owner of rooms that have none, or whose owner is dead. */
export class Claims {
  readonly #environment: ClaimsEnvironment
  readonly #lease: Lease
  readonly #nodes: KnownNodes

  constructor(environment: ClaimsEnvironment, lease: Lease, nodes: KnownNodes) {
    this.#environment = environment
    this.#lease = lease
    this.#nodes = nodes
  }

  /**
   * Claims `project/type:key`. With a `creator`, it may also be a new room. With `byLease`, an owner counts as dead only without a lease. A
   * room whose record names this node is free, because the node does not run it. The place is `unavailable` if the store does not answer, or
   * if claims are not allowed for 10 s. Never rejects.
   */
  async claim(room: string, options: ClaimOptions): Promise<ClaimPlace> {
    const { clock, log, metrics } = this.#environment
    const began = clock.monotonic()
    let result: ClaimOutcome = 'unavailable'
    try {
      const place = await this.#claim(room, options, began)
      result = outcomeOf(place)
      if (place.at === 'here' && place.from !== undefined) {
        const { claim, from } = place
        log.info({ room, from, ms: Math.round(clock.monotonic() - began) }, 'a room was taken over')
        this.#traceTakeover(room, claim.fence.epoch, from, began, options)
      }
      return place
    } catch (error) {
      log.warn({ err: error, room }, 'claim of a room failed')
      return storeIsSilent(room)
    } finally {
      metrics.claims.inc({ result })
      if (result === 'claimed' || result === 'taken_over')
        metrics.claimDuration.observe((clock.monotonic() - began) / 1000)
    }
  }

  /**
   * Returns the record of a room. Waits until a missing record means that the room does not exist: after a loss of data, the owners first write
   * their rooms again. Rejects with `StoreUnavailable`.
   */
  async inspect(room: string): Promise<RoomOwner | undefined> {
    const { store, clock } = this.#environment
    const began = clock.monotonic()
    for (;;) {
      const askedAt = clock.monotonic()
      const record = await store.rooms.inspect(room)
      if (this.#isReliable(record, askedAt)) return record
      if (!(await this.#allowed(began)))
        throw new StoreUnavailable('the store has no record of the room, but may have lost it')
    }
  }

  /**
   * Returns true if an answer of the store can be used. An outdated record does no harm, because a claim over its epoch fails. A missing record may
   * mean that the store has lost its data after the question.
   */
  #isReliable(record: RoomOwner | undefined, askedAt: number): boolean {
    return record !== undefined || askedAt >= this.#nodes.claimsAllowedAt
  }

  /** Records the span of a takeover. It starts a trace, because it affects all members. It is linked to the joins and resumes that waited. */
  #traceTakeover(
    room: string,
    epoch: number,
    from: string,
    beganAt: number,
    { askedBy }: ClaimOptions,
  ): void {
    const attributes = {
      ...roomAttributes(roomNamed(room)),
      'roomful.epoch': epoch,
      'roomful.from_node_id': nodeName(from),
    }
    const links = [...new Set(askedBy?.())].slice(0, MOST_LINKS)
    this.#environment.tracer.span('room.take_over', { links, beganAt, attributes }).end()
  }

  async #claim(room: string, options: ClaimOptions, began: number): Promise<ClaimPlace> {
    const { nodeId, clock } = this.#environment
    const { creator, byLease = false, stateVersion = 1 } = options
    let { seen } = options
    while (await this.#allowed(began)) {
      let found = seen
      seen = undefined
      // A room that another node owns is not free.
      if ((found?.owner ?? nodeId) === nodeId) {
        const askedAt = clock.monotonic()
        const opened = await this.#open(room, stateVersion, creator)
        if (opened && 'at' in opened) return opened
        if (!this.#isReliable(opened, askedAt)) continue
        if (!opened && creator === undefined) return ABSENT
        found = opened
      }
      const from = found?.owner ?? nodeId
      const isOrphan = from !== nodeId
      // If that node has just crashed, the edges repeat their questions when this is known.
      if (isOrphan && (this.#nodes.isAlive(from) || (await this.#nodes.judge(from, byLease)) === 'alive'))
        return { at: 'node', nodeId: from }
      if ((found?.stateVersion ?? 1) > stateVersion)
        return nowhere(
          'newer',
          unavailableText(roomNamed(room), 'the code of its room type is too old here: try again'),
        )
      // Without a claim, another node was faster. It owns the room now, or has released it again.
      const claim = isOrphan && (await this.#recover(room, found!))
      if (claim) return { at: 'here', claim: this.#timed(claim, from), mayMake: creator !== undefined, from }
      if (!isOrphan) await sleep(clock, AGAIN_MS)
    }
    return storeIsSilent(room)
  }

  /** Reads the owner of a room, and claims the room with the same command if it is free. Returns the owner if the room was not claimed. */
  async #open(
    room: string,
    stateVersion: number,
    creator: string | undefined,
  ): Promise<ClaimPlace | RoomOwner | undefined> {
    const { store, nodeId, clock, recordTtlMs: ttlMs } = this.#environment
    const mayClaim = (): boolean => this.#lease.valid() && clock.monotonic() >= this.#nodes.claimsAllowedAt
    // The two commands are independent, and may go to two servers. The reservation matters only if the room is claimed.
    const [refused, found] = await Promise.all([
      creator === undefined ? undefined : this.#reserve(room, creator).catch((error: unknown) => ({ error })),
      store.rooms.open(room, { owner: nodeId, ttlMs, stateVersion, creator }, mayClaim),
    ])
    if (!found || !('fence' in found)) return found
    if (!refused) return { at: 'here', claim: found, mayMake: creator !== undefined }
    await this.#giveBack(room, found)
    if ('error' in refused) throw refused.error
    return refused
  }

  /** Counts a new room in the quota. A released or already counted room passes. Undefined: it may be created. */
  async #reserve(room: string, creator: string): Promise<Nowhere<RefusedClaim> | undefined> {
    const { store, recordTtlMs } = this.#environment
    const quota = quotaOf(creator, this.#environment.quota)
    switch (await store.rooms.reserve(room, creator, quota, recordTtlMs)) {
      case 'project_full':
        return nowhere('project_full', `limit reached: ${quota.maxRooms} rooms per project`)
      case 'principal_full':
        return nowhere(
          'too_many_rooms',
          `limit reached: ${quota.maxLasting} rooms that sleep or have timers per player. Wait until one of them ends`,
        )
      case 'too_fast':
        return nowhere(
          'rate_limited',
          `one player, or token without sub, may make ${quota.perMinute} new rooms a minute: try again later`,
        )
      case 'reserved':
        return undefined
    }
  }

  /** Releases a claimed room that may not be created. A room with content already existed, so its record stays. */
  async #giveBack(room: string, claim: Claim): Promise<void> {
    await this.#environment.store.rooms.release(room, claim.fence, { forget: isEmpty(claim) })
  }

  /** Claims an orphan under a lock: one of the nodes that want it claims it, and the others then find it owned. */
  async #recover(room: string, orphan: RoomOwner): Promise<Claim | undefined> {
    const { nodeId, recordTtlMs, store } = this.#environment
    const { rooms, locks } = store
    return locks.withLock(`claim:${room}`, LOCK, async () => {
      const found = await rooms.inspect(room)
      return found?.epoch === orphan.epoch ? rooms.claim(room, nodeId, found.epoch, recordTtlMs) : undefined
    })
  }

  /** Returns the claim of an orphan. Its owner `from` may have lived on after its last write. */
  #timed(claim: Claim, from: string): Claim {
    const listenedAt = this.#nodes.listenedAt(from)
    if (claim.idleMs === undefined || listenedAt === undefined) return claim
    return { ...claim, idleMs: Math.min(claim.idleMs, this.#environment.clock.monotonic() - listenedAt) }
  }

  /** Resolves to true when rooms may be claimed or counted as absent. Resolves to false after `WAIT_MS`. */
  async #allowed(began: number): Promise<boolean> {
    const { clock } = this.#environment
    const until = began + WAIT_MS
    for (;;) {
      const now = clock.monotonic()
      const wait = this.#nodes.claimsAllowedAt - now
      if (now >= until) return false
      // Without a lease, other nodes would claim the room again.
      if (wait <= 0 && this.#lease.valid()) return true
      const look = wait > 0 && wait < Number.POSITIVE_INFINITY ? wait : CLAIMS_ALLOWED_CHECK_MS
      await sleep(clock, Math.min(look, until - now))
    }
  }
}

/**
 * Quota of a principal. Queues have only the limit of the project. The cancellation of a match has no limit, because its tickets wait until a room
 * has confirmed it.
 */
function quotaOf(principal: string, quota: RoomQuota): RoomQuota {
  if (principal === QUEUE_PRINCIPALS.cancel) return { maxRooms: 0, maxLasting: 0, perMinute: 0 }
  return principal === QUEUE_PRINCIPALS.reserve ? { ...quota, maxLasting: 0, perMinute: 0 } : quota
}

const storeIsSilent = (room: string): Nowhere<'unavailable'> =>
  unavailable(roomNamed(room), 'the store does not answer')

function outcomeOf(place: ClaimPlace): ClaimOutcome {
  if (place.at === 'nowhere') return place.why
  if (place.at === 'node') return 'elsewhere'
  return place.from === undefined ? 'claimed' : 'taken_over'
}
