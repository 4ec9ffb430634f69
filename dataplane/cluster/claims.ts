import { sleep } from '../../shared/clock.ts'
import { nodeName } from '../../shared/ids.ts'
import {
  type Claim,
  type RoomOwner,
  type RoomQuota,
  type Store,
  StoreUnavailable,
} from '../../shared/store/port.ts'
import {
  ABSENT,
  type ClaimOptions,
  type Inspection,
  type Nowhere,
  nowhere,
  type Place,
  QUEUE_PRINCIPALS,
  unavailable,
  unavailableText,
} from '../place.ts'
import { roomAttributes, roomNamed } from '../traffic.ts'
import type { NodeLease } from './lease.ts'
import type { ClaimOutcome } from './metrics.ts'
import type { ClusterNodes } from './nodes.ts'
import type { ClusterEnvironment, Ownership } from './ownership.ts'

interface ClaimsEnvironment
  extends Pick<
    ClusterEnvironment,
    'nodeId' | 'clock' | 'log' | 'metrics' | 'tracer' | 'recordTtlMs' | 'quota'
  > {
  readonly store: Pick<Store, 'rooms' | 'locks'>
}

/** The ownership that claims are made for. */
interface Claimant extends Pick<Ownership, 'takenOver'> {
  readonly lease: Pick<NodeLease, 'valid'>
  readonly nodes: Pick<ClusterNodes, 'isAlive' | 'judge' | 'claimsAllowedAt'>
}

/** Reasons for which a claim ends without a room. */
type RefusedClaim = Exclude<ClaimOutcome, 'claimed' | 'taken_over' | 'elsewhere'>
type ClaimPlace = Place<RefusedClaim>

const ATTEMPTS = 4
/** How long a claim waits until claims are allowed. */
const WAIT_MS = 10_000
/** A recovery is two short questions to the store: no claim waits longer than this for that of another node. */
const LOCK = { ttlMs: 2000, waitMs: 2000 }
/** Of those that waited for a room that was taken over, so many are named in its span. */
const MOST_LINKS = 32
/** How often is looked whether claims are allowed, when it is not known from when on. */
const CLAIMS_ALLOWED_CHECK_MS = 100

/** Makes this node the owner of rooms that have none, or whose owner is dead. */
export class Claims {
  readonly #environment: ClaimsEnvironment
  readonly #ownership: Claimant

  constructor(environment: ClaimsEnvironment, ownership: Claimant) {
    this.#environment = environment
    this.#ownership = ownership
  }

  /**
   * Claims `project/type:key`. With a `creator`, also a room that is nowhere; with `byLease`, only from owners without a lease. A room whose
   * record names this node is free: the node does not run it. The place is `unavailable` if the store does not answer, or if claims are not
   * allowed for 10 s. Never rejects.
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
        this.#ownership.takenOver(room, from)
        this.#traceTakeover(room, claim.fence.epoch, from, began, options)
      }
      return place
    } catch (error) {
      log.warn({ err: error, room }, 'a room could not be claimed')
      return storeIsSilent(room)
    } finally {
      metrics.claims.inc({ result })
      if (result === 'claimed' || result === 'taken_over')
        metrics.claimDuration.observe((clock.monotonic() - began) / 1000)
    }
  }

  /**
   * Returns the record of a room. Waits until a missing record means that the room is nowhere: after a loss of data, the owners first write
   * their rooms again. `began`: since when the caller waits, monotonic. Rejects with `StoreUnavailable`.
   */
  async inspect(room: string, began = this.#environment.clock.monotonic()): Promise<Inspection> {
    const { store, clock } = this.#environment
    for (;;) {
      const askedAt = clock.monotonic()
      const seen = { record: await store.rooms.inspect(room), askedAt }
      if (this.#isReliable(seen)) return seen
      if (!(await this.#allowed(began)))
        throw new StoreUnavailable('the store has no record of the room, but may have lost it')
    }
  }

  /**
   * Whether the answer still holds. A record may be out of date, then a claim over its epoch fails. A missing record may be the answer of a
   * store that lost its data after it was asked, and a claim of it would succeed beside the owner's.
   */
  #isReliable({ record, askedAt }: Inspection): boolean {
    return record !== undefined || askedAt >= this.#ownership.nodes.claimsAllowedAt
  }

  /** The span of a takeover begins a trace, since it happens to everyone in the room. It is linked to the joins and resumes that waited. */
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
    const { nodeId } = this.#environment
    const { nodes } = this.#ownership
    const { creator, byLease = false, stateVersion = 1 } = options
    let { seen } = options
    let found: RoomOwner | undefined
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (!(await this.#allowed(began))) return storeIsSilent(room)
      if (attempt === 0 && !seen) {
        const opened = await this.#open(room, stateVersion, creator)
        if ('at' in opened) return opened
        seen = opened
      }
      found = (seen && this.#isReliable(seen) ? seen : await this.inspect(room, began)).record
      seen = undefined
      if (!found && creator === undefined) return ABSENT
      const previous = found?.owner ?? nodeId
      const orphan = previous !== nodeId
      // Wrong about a node that has just died: its edges ask again when that is known.
      if (orphan && (nodes.isAlive(previous) || (await nodes.judge(previous, byLease)) === 'alive'))
        return { at: 'node', nodeId: previous }
      if ((found?.stateVersion ?? 1) > stateVersion)
        return nowhere(
          'newer',
          unavailableText(roomNamed(room), 'the code of its room type is too old here: try again'),
        )
      if (orphan) {
        const claim = await this.#recover(room, found!)
        if (claim) return { at: 'here', claim, mayMake: creator !== undefined, from: previous }
      } else if (creator === undefined) {
        const claim = await this.#compareAndSet(room, found)
        if (claim) return { at: 'here', claim, mayMake: false }
      } else {
        // The two are independent, and refusals are rare: neither waits for the other.
        const [refused, claim] = await Promise.all([
          this.#reserve(room, creator),
          this.#compareAndSet(room, found, creator),
        ])
        if (claim && refused) await this.#giveBack(room, claim)
        if (refused) return refused
        if (claim) return { at: 'here', claim, mayMake: true }
      }
      // Another node was faster: it owns the room now, or has released it again.
    }
    const owner = found?.owner
    return owner && owner !== nodeId ? { at: 'node', nodeId: owner } : storeIsSilent(room)
  }

  /** Asks for the owner of a room, and claims the room with the same command if it is free. Returns the answer if it is not. */
  async #open(
    room: string,
    stateVersion: number,
    creator: string | undefined,
  ): Promise<ClaimPlace | Inspection> {
    const { store, nodeId, clock, recordTtlMs: ttlMs } = this.#environment
    const { lease, nodes } = this.#ownership
    const askedAt = clock.monotonic()
    const mayClaim = (): boolean => lease.valid() && clock.monotonic() >= nodes.claimsAllowedAt
    // The two are independent. A room that is not made is counted already.
    const [refused, found] = await Promise.all([
      creator === undefined ? undefined : this.#reserve(room, creator),
      store.rooms.open(room, { owner: nodeId, ttlMs, stateVersion, creator }, mayClaim),
    ])
    if (!found || !('fence' in found)) return { record: found, askedAt }
    if (refused) await this.#giveBack(room, found)
    return refused ?? { at: 'here', claim: found, mayMake: creator !== undefined }
  }

  #compareAndSet(room: string, found: RoomOwner | undefined, creator?: string): Promise<Claim | undefined> {
    const { store, nodeId, recordTtlMs } = this.#environment
    return store.rooms.claim(room, nodeId, found?.epoch ?? 0, recordTtlMs, creator)
  }

  /** Counts a room that a join makes; one that was released or is counted passes. Undefined: it may be made. */
  async #reserve(room: string, creator: string): Promise<Nowhere<RefusedClaim> | undefined> {
    const { store, recordTtlMs } = this.#environment
    const quota = quotaOf(creator, this.#environment.quota)
    switch (await store.rooms.reserve(room, creator, quota, recordTtlMs)) {
      case 'project_full':
        return nowhere('project_full', `the project has ${quota.maxRooms} rooms, and may have no more`)
      case 'principal_full':
        return nowhere(
          'too_many_rooms',
          `the player has made ${quota.maxLasting} rooms that sleep or have timers, and may make no more until one of them ends`,
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

  /** Releases a room that was claimed, but may not be made. A room with content was made before: it stays. */
  async #giveBack(room: string, { fence, snapshot, journal }: Claim): Promise<void> {
    const forget = !snapshot && journal.length === 0
    await this.#environment.store.rooms.release(room, fence, { forget })
  }

  /** Of all nodes that want an orphan one recovers it, while the others wait and then find it owned. */
  async #recover(room: string, orphan: RoomOwner): Promise<Claim | undefined> {
    const { rooms, locks } = this.#environment.store
    return locks.withLock(`claim:${room}`, LOCK, async () => {
      const found = await rooms.inspect(room)
      return found?.epoch === orphan.epoch ? this.#compareAndSet(room, found) : undefined
    })
  }

  /** Resolves with true once rooms may be claimed, or taken for absent; with false when that lasts too long. */
  async #allowed(began: number): Promise<boolean> {
    const { clock } = this.#environment
    const { lease, nodes } = this.#ownership
    const until = began + WAIT_MS
    for (;;) {
      const now = clock.monotonic()
      const wait = nodes.claimsAllowedAt - now
      // What a node without a lease claims, the others would take again.
      if (wait <= 0 && lease.valid()) return true
      if (now >= until) return false
      const look = wait > 0 && wait < Number.POSITIVE_INFINITY ? wait : CLAIMS_ALLOWED_CHECK_MS
      await sleep(clock, Math.min(look, until - now))
    }
  }
}

/**
 * Quota of the rooms of a principal. A queue is not limited as a player is. What cancels a match is not limited at all: its tickets wait until
 * a room has confirmed it.
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
