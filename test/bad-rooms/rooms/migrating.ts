import { defineRoom } from 'roomful'
import { type Fault, runFault } from '../faults.ts'

/** As in a rolling upgrade: the first node has the old code, the others have the new code. */
const version = process.env.NODE_ID === 'node-1' ? 1 : 2

/** Room type whose empty rooms sleep. A join at any other node than the first one migrates the room, which runs its fault. */
export default defineRoom({
  type: 'migrating',
  durability: 'journal',
  idleSeconds: 1,
  onIdle: 'sleep',
  version,
  ...(version === 2 && {
    migrate: { 1: (state: unknown) => void runFault('migrate', (state as { fault: Fault }).fault) },
  }),
  create: (options) => ({ fault: (options as { fault: Fault }).fault }),
})
