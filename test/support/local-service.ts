import { LocalService } from '../../loadtest/local.ts'
import { systemClock } from '../../shared/clock.ts'
import { systemRandom } from '../../shared/random.ts'
import type { ServiceAddresses } from './service-processes.ts'

/**
 * A program: starts a service of so many nodes (its only word) as a load test with `--local` does, tells where everything is as one line of
 * JSON, and ends it all with its standard input.
 */
const local = await LocalService.start({
  nodes: Number(process.argv[2]),
  env: process.env,
  clock: systemClock,
  random: systemRandom,
  tell: (line) => void process.stderr.write(`${line}\n`),
})
const { wsUrls, metrics, cluster } = local
const { controlUrl, folder, children, secrets } = cluster
const told: ServiceAddresses = {
  controlUrl,
  controlToken: secrets.operatorToken,
  wsUrls,
  metrics,
  pids: Object.fromEntries(
    [...children].flatMap(([name, { pid }]) => (pid === undefined ? [] : [[name, pid]])),
  ),
  folder,
}
process.stdout.write(`${JSON.stringify(told)}\n`)
process.stdin.resume()
process.stdin.once('end', () => void cluster.close())
