import type { Json } from '../../shared/json.ts'
import type { Claim } from '../../shared/store/port.ts'
import { Checksum } from '../../shared/sync/checksum.ts'
import { apply, type Change, type Delta, ObjectDelta, REMOVE } from '../../shared/sync/delta.ts'
import type { Outcome as MessageOutcome } from '../traffic.ts'
import { RoomLogicError } from './failures.ts'
import {
  type HiddenValue,
  type JournalFormat,
  NewerRecord,
  type PastUpdates,
  type Position,
  type RoomSnapshot,
  UnreadableRecord,
  type Update,
} from './journal.ts'
import { Grants, type LayerRules, NOBODY } from './layer-rules.ts'
import { merged } from './layers.ts'
import { type MembershipRecord, memberFor } from './member.ts'
import { LiveState } from './state.ts'
import { type Outcome, Tables } from './table.ts'

/** A room as it starts on a node: new, or from its record. The record is decoded completely, so that nothing fails later. */
export interface RestoredRoom extends Position, PastUpdates {
  readonly memberships: readonly MembershipRecord[]
  /** Version of the state. */
  readonly stateVersion: number
  /** When the room was created, milliseconds since 1970. */
  readonly createdAt: number
  /** The room's code. Undefined: it has none. */
  readonly code: string | undefined
  /** True if the room was made for a match, and no player has joined it. */
  readonly awaited: boolean
  /**
   * Returns the state with which the room continues, of which `rules` hides parts. `limit`: bytes. Throws UnreadableRecord if the record does
   * not match its checksum, or what `LiveState` throws for the rules.
   */
  readonly state: (limit: number, rules: LayerRules | undefined) => LiveState
  /** The decoded `updates`. */
  readonly history: readonly Update[]
  readonly grants: Grants
  readonly tables: Tables
  /** Checksums of the base and of all layers in the last update. Undefined: a new room. */
  readonly shown: { readonly checksum: number; readonly layers: number | undefined } | undefined
  /** True if the members saw the spectators. */
  readonly showsSpectators: boolean
}

/** Returns a new room. `awaited`: it is made for a match. */
export function newRoom(
  state: LiveState,
  epoch: number,
  stateVersion: number,
  createdAt: number,
  code: string | undefined,
  outcomes: readonly Outcome[],
  awaited: boolean,
): RestoredRoom {
  const base = { epoch, seq: 0 }
  const tables = new Tables(epoch)
  tables.apply({ outcomes: { set: outcomes, removed: [] } })
  const grants = new Grants([])
  return {
    epoch,
    seq: 0,
    state: () => state,
    memberships: [],
    base,
    updates: [],
    history: [],
    grants,
    shown: undefined,
    showsSpectators: false,
    tables,
    stateVersion,
    createdAt,
    code,
    awaited,
  }
}

/** The parts of a claim that a room is restored from. */
interface RoomRecord {
  readonly snapshot: Claim['snapshot']
  readonly journal: Claim['journal']
  readonly fence: { readonly epoch: number }
}

/**
 * Restores a room from its last snapshot and all later commits. Undefined: the room has never existed, or has ended. Throws
 * UnreadableRecord if the record is damaged or does not match its checksum, and NewerRecord if a newer version has written it.
 */
export function restore(claim: RoomRecord, format: JournalFormat): RestoredRoom | undefined {
  return reading(() => readRecord(claim, format))
}

function reading<T>(read: () => T): T {
  try {
    return read()
  } catch (error) {
    // A RoomLogicError is a mistake of the rules of layers.
    const known = [UnreadableRecord, NewerRecord, RoomLogicError].some((kind) => error instanceof kind)
    if (known) throw error
    throw new UnreadableRecord('the parts of a room record do not fit each other', { cause: error })
  }
}

function readRecord(
  { snapshot, journal, fence }: RoomRecord,
  format: JournalFormat,
): RestoredRoom | undefined {
  // An empty snapshot stands for a room that was handed over and is not stored since.
  if (!snapshot?.length) {
    if (journal.length === 0) return undefined
    throw new UnreadableRecord(`a room record has ${journal.length} journal entries but no snapshot`)
  }
  const whole = format.readSnapshot(snapshot)
  const history = whole.updates.map((bytes) => format.readEntry(bytes))
  const updates = history.map((update, i) => format.renewed(update, whole.updates[i]!))
  requireGapFree(whole, history)
  const memberships = new Map(
    whole.memberships.map((membership) => [membership.member.id, open(membership, whole.seq)]),
  )
  const tables = new Tables(fence.epoch, whole.tables)
  const state = new RecordedState(whole)
  let { epoch, seq } = whole
  let awaited = whole.awaited === true
  const grants = new Grants(whole.layers?.grants ?? [])
  for (const bytes of journal) {
    const update = format.readEntry(bytes)
    if (update.seq !== seq + (update.visible ? 1 : 0))
      throw new UnreadableRecord(`a journal entry has seq ${update.seq} behind seq ${seq}`)
    state.apply(update)
    applyToMemberships(memberships, update)
    if (bringsPlayer(update)) awaited = false
    if (update.tables) tables.apply(update.tables)
    if (update.visible) {
      updates.push(format.renewed(update, bytes))
      history.push(update)
    }
    for (const grant of update.layers?.grants ?? []) grants.change(grant)
    for (const { member } of update.left) grants.forget(member.id)
    ;({ epoch, seq } = update)
  }
  grants.flush()
  // Updates of version 9 do not have the changes of layers, so members get the whole state.
  const past = history.some(({ layers }) => layers?.values)
    ? { base: { epoch, seq }, updates: [], history: [] }
    : { base: whole.base, updates, history }
  return {
    epoch,
    seq,
    state: (limit, rules) => reading(() => state.live(limit, rules, whole.stateVersion)),
    memberships: [...memberships.values()],
    ...past,
    grants,
    tables,
    shown: state.checksums,
    stateVersion: whole.stateVersion,
    createdAt: whole.createdAt,
    code: whole.code,
    awaited,
    showsSpectators: whole.showsSpectators,
  }
}

/** The state in a record: the base, and the states of the layers. In version 9: the whole state. */
class RecordedState {
  #base: Json
  readonly #layers: Map<string, Json>
  /** As of the last update. */
  checksums: { readonly checksum: number; readonly layers: number | undefined }

  constructor({ checksum, layers, state }: RoomSnapshot) {
    this.#base = state
    this.#layers = new Map(layers?.states?.map(({ layer, state }) => [layer, state]))
    this.checksums = { checksum, layers: layers?.states && layers.checksum }
  }

  apply({ checksum, delta, layers }: Update): void {
    const { values } = layers ?? {}
    if (values) {
      this.#applyValues(values, delta)
      this.checksums = { checksum: layers!.checksum, layers: undefined }
      return
    }
    if (delta) this.#base = apply(this.#base, delta)
    for (const { layer, change } of layers?.changed ?? []) this.#change(layer, change)
    if (layers?.unseen) this.#change(NOBODY, layers.unseen)
    this.checksums = { checksum, layers: layers?.checksum }
  }

  live(limit: number, rules: LayerRules | undefined, version: number): LiveState {
    const { checksum, layers } = this.checksums
    const state = new LiveState(merged(this.#base, this.#layers.values()), limit, rules, version)
    if (state.checksum === checksum && state.hidden?.checksum === layers) return state
    // Perhaps the code hides other parts than before.
    const sums = new Checksum()
    requireChecksum('state has', sums.of(this.#base), checksum)
    if (layers !== undefined)
      requireChecksum('layers have', sums.of(Object.fromEntries(this.#layers)), layers)
    return state
  }

  #change(layer: string, change: Change): void {
    if (change === REMOVE) this.#layers.delete(layer)
    else this.#layers.set(layer, apply(this.#layers.get(layer) ?? {}, change))
  }

  /** A removed value may have been in an object that is gone, and a new one is perhaps in a new object. */
  #applyValues(values: readonly HiddenValue[], delta: Delta | undefined): void {
    const put = ({ path, change }: HiddenValue) => {
      const whole = path.reduceRight<Change>((below, key) => new ObjectDelta([key], [below]), change)
      this.#base = apply(this.#base, whole as Delta)
    }
    for (const value of values) if (value.change === REMOVE) put(value)
    if (delta) this.#base = apply(this.#base, delta)
    for (const value of values) if (value.change !== REMOVE) put(value)
  }
}

function requireChecksum(what: string, found: number, committed: number): void {
  if (found === committed) return
  throw new UnreadableRecord(`the restored ${what} the checksum ${found}, but ${committed} was committed`)
}

/** True if a player joins with an update, or becomes one. */
export const bringsPlayer = ({ joined, roles }: Pick<Update, 'joined' | 'roles'>): boolean =>
  joined.some(({ member }) => !member.spectator) || roles.some(({ spectator }) => !spectator)

function requireGapFree({ base, seq }: RoomSnapshot, history: readonly Update[]): void {
  let last = base.seq
  for (const update of history) {
    if (!update.visible || update.seq !== last + 1)
      throw new UnreadableRecord(`the history of a snapshot has seq ${update.seq} behind seq ${last}`)
    last = update.seq
  }
  if (last !== seq)
    throw new UnreadableRecord(`the history of a snapshot ends at seq ${last}; the snapshot is at ${seq}`)
}

function applyToMemberships(
  memberships: Map<string, RestoredMembership>,
  { seq, joined, replaced, left, presence, roles, renewed, acks, outcomes }: Update,
): void {
  for (const { member } of left) memberships.delete(member.id)
  // A seat that is taken over keeps its place in the order.
  for (const membership of [...joined, ...replaced])
    memberships.set(membership.member.id, open(membership, seq))
  for (const { memberId, ...change } of [...presence, ...roles, ...renewed]) {
    const membership = memberships.get(memberId)
    if (membership)
      memberships.set(memberId, {
        ...membership,
        member: memberFor({ ...membership.member, ...change }),
      })
  }
  for (const { memberId, ref, forgotten } of acks) {
    const membership = memberships.get(memberId)
    if (membership) memberships.set(memberId, { ...membership, lastRef: ref, forgotten })
  }
  for (const { memberId, ...outcome } of outcomes) {
    const membership = memberships.get(memberId)
    // A member that joined with this update has the outcome already.
    if (membership && outcome.ref > (membership.outcomes.at(-1)?.ref ?? 0)) membership.outcomes.push(outcome)
  }
}

/** A membership while its journal is being applied. */
interface RestoredMembership extends MembershipRecord {
  readonly outcomes: MessageOutcome[]
}

/** `seq`: that of the record, in which an older version has not written when the member joined. */
const open = (membership: MembershipRecord, seq: number): RestoredMembership => ({
  ...membership,
  joinedSeq: membership.joinedSeq ?? seq,
  member: memberFor(membership.member),
  outcomes: [...membership.outcomes],
})
