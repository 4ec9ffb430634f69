import { checkClients } from './client-rules.ts'
import { checkEnd } from './end-rules.ts'
import type { History } from './history.ts'
import { checkOps } from './op-rules.ts'
import { Ownerships } from './ownership.ts'
import { checkStore } from './store-rules.ts'
import { checkStreams } from './stream-rules.ts'
import type { Violation } from './violation.ts'

/** Everything in a history that breaks a promise, the earliest first; nothing when all of them held. */
export function check(history: History): Violation[] {
  const ownerships = new Ownerships(history)
  return [
    ...checkStore(history, ownerships),
    ...checkStreams(history, ownerships),
    ...checkOps(history, ownerships),
    ...checkClients(history, ownerships),
    ...checkEnd(history),
  ].sort((a, b) => a.at - b.at)
}
