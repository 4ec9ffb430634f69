import type { Scenario } from '../scenario.ts'
import { bans } from './bans.ts'
import { bigRoom } from './big-room.ts'
import { calls } from './calls.ts'
import { churn } from './churn.ts'
import { connectStorm } from './connect-storm.ts'
import { commits, hop, rooms, sessions } from './costs.ts'
import { faults } from './faults.ts'
import { lobby } from './lobby.ts'
import { matchmaking } from './matchmaking.ts'
import { nodeKill, rollingRestart } from './node-by-node.ts'
import { resumeStorm } from './resume-storm.ts'
import { revoke } from './revoke.ts'
import { slowConsumers } from './slow-consumers.ts'
import { steady } from './steady.ts'

/** Every scenario, in the order of the help. */
export const SCENARIOS: readonly Scenario[] = [
  steady,
  connectStorm,
  resumeStorm,
  churn,
  bigRoom,
  slowConsumers,
  revoke,
  rollingRestart,
  nodeKill,
  // Measurements.
  faults,
  lobby,
  calls,
  bans,
  matchmaking,
  hop,
  commits,
  rooms,
  sessions,
]
