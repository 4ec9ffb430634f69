import { checkActivity } from './activity-rules.ts'
import { checkClients } from './client-rules.ts'
import { checkCommits } from './commit-rules.ts'
import { CommitTimes } from './commit-times.ts'
import { checkEnd } from './end-rules.ts'
import { type ExcusedShare, Excuses, excusedShare } from './excuses.ts'
import type { History } from './history.ts'
import { checkOps } from './op-rules.ts'
import { Ownerships } from './ownership.ts'
import { checkRollbacks } from './rollback-rules.ts'
import { checkStore } from './store-rules.ts'
import { checkStreams } from './stream-rules.ts'
import type { Violation } from './violation.ts'

export interface Verdict {
  /** Everything that breaks a promise, the earliest first; none when all of them held. */
  readonly violations: readonly Violation[]
  /** How much would not have been reported. */
  readonly excused: ExcusedShare
}

/** What a history proves. */
export function check(history: History): Verdict {
  const ownerships = new Ownerships(history)
  const excuses = new Excuses(history, ownerships)
  const times = new CommitTimes(history, ownerships)
  const violations = [
    ...checkActivity(history),
    ...checkStore(history, ownerships),
    ...checkCommits(history, times),
    ...checkRollbacks(history, ownerships),
    ...checkStreams(history, ownerships, excuses),
    ...checkOps(history, excuses, times),
    ...checkClients(history, excuses),
    ...checkEnd(history),
  ].sort((a, b) => a.at - b.at)
  return { violations, excused: excusedShare(history, ownerships, excuses) }
}
