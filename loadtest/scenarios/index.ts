import type { Scenario } from '../scenario.ts'
import { bans, calls } from './backends.ts'
import { lobby } from './lobby.ts'
import { matchmaking } from './matchmaking.ts'
import { commits, faults, hop, rooms, sessions } from './measurements.ts'
import {
  bigRoom,
  churn,
  connectStorm,
  crowd,
  nodeKill,
  resumeStorm,
  revoke,
  rollingRestart,
  slowConsumers,
  steady,
} from './play.ts'

/** Every scenario, in the order of the help. */
export const SCENARIOS: readonly Scenario[] = [
  steady,
  connectStorm,
  resumeStorm,
  churn,
  bigRoom,
  crowd,
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
