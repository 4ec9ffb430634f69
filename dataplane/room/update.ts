import type { Additions } from './additions.ts'
import { Changes, type Flush } from './changes.ts'
import { type RoomCore, showsSpectatorsOf } from './core.ts'
import type { Member } from './definition-types.ts'
import type { JournalFormat, MemberOutcome, PastUpdates, Update } from './journal.ts'
import type { MembershipRecord } from './member.ts'
import type { Membership, Memberships } from './memberships.ts'
import { bringsPlayer } from './restore.ts'

const NONE: readonly never[] = []

/** Whom the members of a room see (`RoomFrames`). */
interface ShownMembers {
  readonly hidesMembers: boolean
  readonly showsSpectators: boolean
}

/** Takes all changes of a room since the last flush as one update. Undefined: there is nothing to flush. `format` undefined: it is not stored. */
export function takeUpdate(
  room: RoomCore,
  { hidesMembers, showsSpectators }: ShownMembers,
  additions: Additions,
  format: JournalFormat | undefined,
  { stateBytes: limit }: { readonly stateBytes: number },
): Flush | undefined {
  const { changes, log, memberships, state } = room
  const { events, joins, leaves, changed, acked } = changes
  const delta = state.flush()
  state.version = room.definition.version
  const layers = state.hidden && { ...state.hidden.flush(), grants: room.grants.flush() }
  const stateChanged = (delta ?? layers?.unseen ?? layers?.changed[0]) !== undefined
  const bytes = state.nearLimit()
  if (bytes !== undefined) log.warn({ bytes, limit }, 'the state of the room comes near its limit')
  room.changes = new Changes()
  const left =
    leaves.length > 0
      ? leaves
          .filter(({ departs }) => departs)
          .map(({ membership, reason }) => ({ member: membership.flushed, reason }))
      : NONE
  const { presence, roles, renewed } = changed.size > 0 ? changesOf(changed, changes) : UNCHANGED
  const membersChanged = joins.length > 0 || left.length > 0 || presence.length > 0 || roles.length > 0
  const shown = layers?.grants.length ? true : events.length > 0
  const visible = hidesMembers
    ? shown || delta !== undefined || (layers !== undefined && layers.changed.length > 0)
    : shown ||
      stateChanged ||
      (membersChanged && changesList(showsSpectators, joins, { left, presence, roles }))
  const tables = room.tables.flush()
  const recorded =
    acked.length > 0 ||
    leaves.length > 0 ||
    renewed.length > 0 ||
    tables !== undefined ||
    changes.code ||
    additions.dirty ||
    membersChanged ||
    stateChanged
  if (!visible && !recorded) return undefined
  if (visible) room.seq++
  // Before the messages below are marked as flushed.
  const joined: MembershipRecord[] = []
  const replaced: MembershipRecord[] = []
  for (const { membership, replaces } of joins) {
    membership.joinedSeq = room.seq
    ;(replaces ? replaced : joined).push(membership.record())
  }
  if (room.awaited && bringsPlayer({ joined, roles })) room.awaited = false
  // The turns of the requests did not know this seq.
  for (const { answer } of tables?.outcomes?.set ?? NONE) if ('reply' in answer) answer.seq = room.seq
  const stillHere: Membership[] = []
  const acks: Update['acks'][number][] = []
  const outcomes: MemberOutcome[] = []
  for (const membership of acked) {
    if (!membership.present) continue
    const { refs } = membership
    const { id: memberId } = membership.member
    const { ref, forgotten, outcomes: since } = refs.flush()
    for (const outcome of since) outcomes.push({ memberId, ...outcome })
    membership.ackDue = false
    stillHere.push(membership)
    acks.push({ memberId, ref, forgotten })
  }
  const update: Update = {
    epoch: room.epoch,
    seq: room.seq,
    visible,
    checksum: state.checksum,
    delta,
    events,
    joined,
    replaced,
    left,
    presence,
    roles,
    renewed,
    acks,
    outcomes,
    layers,
    tables,
  }
  return {
    update,
    additions: additions.dirty ? additions.flush(update) : NONE,
    packed: format?.entry(update),
    members: showsSpectators ? memberships.members : memberships.players,
    playerCount: memberships.players.length,
    spectatorCount: memberships.spectatorCount,
    stateChanged,
    changes,
    acked: stillHere,
  }
}

/** Changes of members that stay. */
interface MembersChanges {
  readonly presence: Update['presence']
  readonly roles: Update['roles']
  readonly renewed: Update['renewed']
}

const UNCHANGED: MembersChanges = { presence: NONE, roles: NONE, renewed: NONE }

/** Returns the changes of remaining members since the last flush, and marks them as flushed. */
function changesOf(changed: ReadonlySet<Membership>, { joins }: Changes): MembersChanges {
  const presence: Update['presence'][number][] = []
  const roles: Update['roles'][number][] = []
  const renewed: Update['renewed'][number][] = []
  for (const membership of changed) {
    const { member, flushed } = membership
    const { id: memberId, sub, connected, spectator, data } = member
    if (!membership.present) continue
    // A new member joins in its present role.
    const changesRole =
      spectator !== flushed.spectator &&
      !joins.some((join) => join.membership === membership && !join.replaces)
    if (changesRole) roles.push({ memberId, sub, spectator })
    // For the other members, a spectator that has become a player is connected.
    if (connected !== flushed.connected || (changesRole && !connected))
      presence.push({ memberId, connected, sub, spectator })
    if (data !== flushed.data) renewed.push({ memberId, data })
    membership.flushed = member
  }
  return { presence, roles, renewed }
}

/** True if the list of members that all members see is another one after these changes. */
function changesList(
  showsSpectators: boolean,
  joins: Changes['joins'],
  { left, presence, roles }: Pick<Update, 'left' | 'presence' | 'roles'>,
): boolean {
  const isListed = ({ spectator }: { readonly spectator: boolean }) => !spectator || showsSpectators
  return (
    roles.length > 0 ||
    joins.some(({ membership }) => isListed(membership.member)) ||
    left.some(({ member }) => isListed(member)) ||
    presence.some(isListed)
  )
}

/**
 * Packs a room as of its last flush, delivered or not, with the updates that members may have missed: all that a new owner needs.
 */
export function whole(room: RoomCore, format: JournalFormat): Uint8Array {
  const { update, packed } = room.inFlight ?? {}
  return pack(room, format, room.history.record(update?.visible ? { ...update, packed } : undefined))
}

/** Packs a room as of its last flush, without past updates. */
export const withoutHistory = (room: RoomCore, format: JournalFormat): Uint8Array =>
  pack(room, format, { base: { epoch: room.epoch, seq: room.seq }, updates: [] })

function pack(room: RoomCore, format: JournalFormat, past: PastUpdates): Uint8Array {
  const { awaited, createdAt, code, definition, epoch, grants, seq, tables } = room
  const { base, checksum, hidden, version } = room.state
  return format.snapshot({
    epoch,
    seq,
    checksum,
    state: base,
    memberships: flushedMemberships(room).map((membership) => membership.record()),
    layers: hidden && {
      checksum: hidden.checksum,
      states: Object.entries(hidden.states).map(([layer, state]) => ({ layer, state })),
      grants: grants.record(),
    },
    ...past,
    stateVersion: version,
    tables: tables.flushed,
    createdAt,
    code,
    awaited: awaited || undefined,
    showsSpectators: showsSpectatorsOf(definition),
  })
}

/** Memberships as of the last flush. */
interface FlushedMembers {
  readonly changes: Changes
  readonly memberships: Memberships
}

/** Returns the members as of the last flush. */
export const flushedMembers = (room: FlushedMembers): Member[] =>
  flushedMemberships(room).map(({ flushed }) => flushed)

function flushedMemberships({ changes, memberships }: FlushedMembers): Membership[] {
  const fresh = new Set(changes.joins.map(({ membership }) => membership))
  const left = changes.leaves.filter(({ unseen }) => !unseen).map(({ membership }) => membership)
  return [...left, ...[...memberships].filter((membership) => !fresh.has(membership))]
}
