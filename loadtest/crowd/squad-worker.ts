import { parentPort, workerData } from 'node:worker_threads'
import { systemClock } from '../../shared/clock.ts'
import { SeededRandom } from '../../test/support/seeded-random.ts'
import type { CrowdSettings } from './client-parts.ts'
import { Squad } from './squad.ts'
import type { Answer, Order } from './squad-thread.ts'

/** The thread that holds a squad: does what it is told, and answers when that is done. */
const port = parentPort
if (!port) throw new Error('this module runs in a worker thread only')
const settings = workerData as CrowdSettings
const squad = new Squad(settings, systemClock, new SeededRandom(settings.seed))

port.on('message', ({ id, name, args }: Order) => {
  const method = squad[name] as (...args: readonly unknown[]) => Promise<unknown>
  method.apply(squad, [...args]).then(
    (value) => port.postMessage({ id, value } satisfies Answer),
    (error: unknown) => port.postMessage({ id, error: String(error) } satisfies Answer),
  )
})
