import { startControl } from '../../../control/main.ts'
import { live } from '../../../deploy/cli/service.ts'
import { type Clock, systemClock } from '../../../shared/clock.ts'
import { describeProblems, parseConfig } from '../../../shared/config.ts'
import { createLog } from '../../../shared/log.ts'
import { systemRandom } from '../../../shared/random.ts'
import { openStore } from '../../../shared/store/open.ts'
import { controlStore } from './recording-store.ts'

/*
 * Control of a chaos run: node control.ts <URL of its own Redis>, with the environment of `roomful control`. Its Redis, which is never broken, has
 * projects and keys: what the data plane loses with its Redis is the question. Records of players are with the nodes, which read them.
 */

/** So far behind is control's clock: a token is good at nodes whose clocks jump either way. */
const LAG_MS = 12 * 3_600_000

const [ownUrl] = process.argv.slice(2)
const parsed = parseConfig('control', process.env)
if (!parsed.ok || ownUrl === undefined) {
  process.stderr.write(
    `control cannot start:\n${parsed.ok ? 'the URL is missing' : describeProblems(parsed)}\n`,
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
