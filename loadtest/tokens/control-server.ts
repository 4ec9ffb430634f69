import { pino } from 'pino'
import type { startControl as StartControl } from '../../control/main.ts'
import { systemClock } from '../../shared/clock.ts'
import { describeProblems, parseConfig } from '../../shared/config.ts'
import { createLog } from '../../shared/log.ts'
import { systemRandom } from '../../shared/random.ts'
import type { openStore as OpenStore } from '../../shared/store/open.ts'
import { type openTracing as OpenTracing, tracingConfig } from '../../shared/tracing/open.ts'
import { reportCpu } from '../bench/cpu-report.ts'

/**
 * A control process as in production: the compiled code (`npm run build`) on Redis, with sealed keys, an operator token, and a line in its
 * log for every request (which goes nowhere). Only the limit of tokens is out of the way. What it needs is in its environment; so are the variables of
 * OpenTelemetry, if it is to be traced.
 */
const built = (path: string) => import(new URL(`../../dist/${path}`, import.meta.url).href)
const { startControl }: { startControl: typeof StartControl } = await built('control/main.js')
const { openStore }: { openStore: typeof OpenStore } = await built('shared/store/open.js')
const { openTracing }: { openTracing: typeof OpenTracing } = await built('shared/tracing/open.js')

const { BENCH_REDIS_URL, BENCH_KEY_PREFIX, BENCH_OPERATOR_TOKEN, BENCH_INTERNAL_TOKEN, BENCH_PORT } =
  process.env
const parts = {
  clock: systemClock,
  random: systemRandom,
  log: createLog({ log_level: 'info', log_format: 'json' }, {}, pino.destination('/dev/null')),
}
const store = await openStore({ redis_url: BENCH_REDIS_URL!, key_prefix: BENCH_KEY_PREFIX!, ...parts })
const parsed = parseConfig('control', { ...process.env, REDIS_URL: BENCH_REDIS_URL })
if (!parsed.ok) throw new Error(describeProblems(parsed))
const { tracer } = await openTracing({
  config: tracingConfig(parsed.config, 'roomful-control'),
  instance_id: 'bench',
  ...parts,
})
const control = await startControl({
  config: {
    control_port: Number(BENCH_PORT),
    control_api_tokens: [BENCH_OPERATOR_TOKEN!],
    keyring_secret: 'the keyring secret of a benchmark',
    internal_token: BENCH_INTERNAL_TOKEN,
    token_rate: { per_second: 1e6, burst: 1e6 },
  },
  store,
  tracer,
  ...parts,
})
reportCpu({ inputs: () => 0 })
process.send?.({ ready: Number(new URL(control.url).port) })
