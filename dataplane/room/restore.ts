import type { Json } from '../../shared/json.ts'
import type { Claim } from '../../shared/store/port.ts'
import { apply } from '../../shared/sync/delta.ts'
import type { Outcome as MessageOutcome } from '../traffic.ts'
import {
  type JournalFormat,
  NewerRecord,
  type PastUpdates,
  type Position,
  type RoomSnapshot,
  UnreadableRecord,
  type Update,
} from './journal.ts'
import { Grants } from './layer-rules.ts'
import { hiddenDelta } from './layers.ts'
import { LiveTree } from './live-tree.ts'
import { type MembershipRecord, memberFor } from './member.ts'
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
  /** The state with which the room continues. */
  readonly tree: LiveTree
  /** The decoded `updates`. */
  readonly history: readonly Update[]
  readonly grants: Grants
  readonly tables: Tables
  /** Checksum of the base and sum of all layers in the last update. Undefined: a new room. */
  readonly shown: { readonly checksum: number; readonly sum: number } | undefined
  /** True if the members saw the spectators. */
  readonly showsSpectators: boolean
}

/** Returns a new room. `awaited`: it is made for a match. */
export function newRoom(
  tree: LiveTree,
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
    tree,
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
  try {
    return readRecord(claim, format)
  } catch (error) {
    if (error instanceof UnreadableRecord || error instanceof NewerRecord) throw error
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
  let state: Json = whole.state
  let { epoch, seq, checksum } = whole
  let awaited = whole.awaited === true
  let shown = { checksum: whole.layers?.checksum ?? checksum, sum: whole.layers?.sum ?? 0 }
  const grants = new Grants(whole.layers?.grants ?? [])
  for (const bytes of journal) {
    const update = format.readEntry(bytes)
    if (update.seq !== seq + (update.visible ? 1 : 0))
      throw new UnreadableRecord(`a journal entry has seq ${update.seq} behind seq ${seq}`)
    if (update.delta) state = apply(state, update.delta)
    const hidden = update.layers && hiddenDelta(state, update.layers)
    if (hidden) state = apply(state, hidden)
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
    checksum = update.layers?.checksum ?? update.checksum
    shown = { checksum: update.checksum, sum: update.layers?.sum ?? 0 }
  }
  const tree = new LiveTree(state)
  if (tree.checksum !== checksum)
    throw new UnreadableRecord(
      `the restored state has checksum ${tree.checksum}, but ${checksum} was committed`,
    )
  grants.flush()
  return {
    epoch,
    seq,
    tree,
    memberships: [...memberships.values()],
    base: whole.base,
    updates,
    history,
    grants,
    tables,
    shown,
    stateVersion: whole.stateVersion,
    createdAt: whole.createdAt,
    code: whole.code,
    awaited,
    showsSpectators: whole.showsSpectators,
  }
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
