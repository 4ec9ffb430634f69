import { startControl } from '../../../control/main.ts'
import { live } from '../../../deploy/cli/service.ts'
import { type Clock, systemClock } from '../../../shared/clock.ts'
import { describeProblems, parseConfig } from '../../../shared/config.ts'
import { createLog } from '../../../shared/log.ts'
import { systemRandom } from '../../../shared/random.ts'
import { openStore } from '../../../shared/store/open.ts'
import { controlStore } from './recording-store.ts'

/*
 * Control plane of a chaos run: node control.ts <URL of a second Redis>, with the environment of `roomful control`. Projects and keys are in
 * the second Redis, which has no faults: a run tests the data plane's loss of its Redis. Records of players are in the nodes' Redis, because
 * nodes read them.
 */

/** Control's clock is this much slow, so that nodes accept its tokens after a jump of their clocks in either direction. */
const LAG_MS = 12 * 3_600_000

const [ownUrl] = process.argv.slice(2)
const parsed = parseConfig('control', process.env)
if (!parsed.ok || ownUrl === undefined) {
  process.stderr.write(
    `control cannot start:\n${parsed.ok ? 'the first argument, a Redis URL, is missing' : describeProblems(parsed)}\n`,
  )
  process.exit(2)
}
const { config } = parsed
const log = createLog(config, {})
const clock: Clock = { ...systemClock, now: () => systemClock.now() - LAG_MS }

const start = async () => {
  const parts = { log, clock, random: systemRandom }
  const own = await openStore({ redisUrl: ownUrl, ...parts })
  const shared = await openStore({ ...config, ...parts })
  const control = await startControl({ config, store: controlStore(own, shared), ...parts })
  return {
    addresses: { http: control.url },
    close: async () => {
      await control.close()
      await Promise.all([own.close(), shared.close()])
    },
  }
}

live('control', start, log, process)
