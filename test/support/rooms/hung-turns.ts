import { Registry } from 'prom-client'
import { SuspectRecord, withLast } from '../../../dataplane/features/suspects/suspect-record.ts'
import { SUSPECT_METRICS, Suspects } from '../../../dataplane/features/suspects/suspects.ts'
import type { Turn } from '../../../dataplane/room/hooks.ts'
import { registerMetrics } from '../../../shared/metrics.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import { FakeClock } from '../../kit/fake-clock.ts'

/** Options for nodes that share a store and its suspects, and a function that records a turn during which its node has ended. */
export function hungTurns() {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const hashes = () => undefined
  const suspects = new Suspects({
    store,
    clock,
    log: { error() {} },
    hashes,
    turnLimitMs: 800,
    metrics: registerMetrics(new Registry(), SUSPECT_METRICS),
  })
  void suspects.start()
  const record = new SuspectRecord(store)
  return {
    nodes: { clock, store, suspects },
    hang: (turn: Turn) => record.change((shared) => withLast(shared, turn, hashes, clock.now())),
  }
}
