/** What a history can break. Each has its own name, so that a report says at once which promise did not hold. */
export const VIOLATIONS = {
  split_commit: 'two epochs committed the same version or seq of a room',
  stale_commit: 'an epoch committed after a higher one had been claimed',
  version_gap: 'versions of a room, or seqs of a journal, are not gap-free',
  epoch_claimed_twice: 'one epoch of a room was claimed twice',
  room_lost: 'a room began anew although an owner or the store still had it',
  record_differs: 'what the store holds is not what was committed last',
  record_unreadable: 'what the store holds of a room contradicts itself',
  uncommitted_update: 'a member of a journal room saw what was never committed',
  shown_early: 'a member of a journal room saw an update before its commit was certain',
  acked_early: 'an op of a journal room was acked before its commit was certain',
  seq_gap: 'a member met a gap that no resync healed',
  state_owed: 'a resume promised a whole state that never came',
  seq_repeated: 'a member got a seq twice',
  epoch_down: 'the epoch went down at a member',
  checksum_mismatch: 'a patch led to another state than its checksum says',
  divergence: 'two members saw different states under one epoch and seq',
  acked_lost: 'an acked op was not applied',
  applied_twice: 'an op was applied more than once',
  out_of_order: 'ops of one member were applied in another order',
  refused_applied: 'a refused op was applied',
  refused_acked: 'an op was both refused and acked, or acked although the room must refuse it',
  refused_without_cause: 'the room refused an op that it must apply, or in another way than it must',
  unexplained: 'a state holds ops that nobody sent',
  ack_unsent: 'a ref was acked that was never sent',
  unsettled: 'an op was neither acked nor refused although everything works',
  rollback: 'a member saw its room go back where the room type does not allow it',
  rollback_too_far: 'a crash took back more of a snapshot room than about its last second',
  seat_lost: 'a member lost its seat without a cause',
  closed_without_cause: 'a client was disconnected for good without a cause',
  resumed_twice: 'two connections had one session at once',
  no_owner: 'nobody runs a room that has members',
  two_owners: 'two nodes run one room',
  final_mismatch: 'a member ended with another state than the owner',
  too_little: 'too little happened to prove anything',
} as const

export type ViolationName = keyof typeof VIOLATIONS

export interface Violation {
  readonly name: ViolationName
  /** When it showed, on the history's clock. */
  readonly at: number
  readonly room?: string
  readonly member?: string
  readonly client?: string
  /** What was seen and what should have been. */
  readonly message: string
}
