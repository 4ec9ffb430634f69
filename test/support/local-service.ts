import { startLocal } from '../../loadtest/local.ts'
import { systemClock } from '../../shared/clock.ts'
import { systemRandom } from '../../shared/random.ts'

/**
 * A program: starts a service of so many nodes (its only word) as a load test with `--local` does, tells where everything is as one line of
 * JSON, and ends it all with its standard input.
 */
const local = await startLocal({
  nodes: Number(process.argv[2]),
  env: process.env,
  clock: systemClock,
  random: systemRandom,
  tell: (line) => void process.stderr.write(`${line}\n`),
})
const { controlUrl, controlToken, wsUrls, metrics, pids, folder } = local
process.stdout.write(`${JSON.stringify({ controlUrl, controlToken, wsUrls, metrics, pids, folder })}\n`)
process.stdin.resume()
process.stdin.once('end', () => void local.close())
