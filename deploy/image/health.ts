import { readFileSync } from 'node:fs'
import { readSecretFile } from '../../shared/config.ts'
import { healthUrl, planeOf } from './health-url.ts'

/**
 * The health check of the image: ends with 0 when the plane that is process 1 of the container answers `GET /healthz`, else with 1 and a
 * line that says why. A word names the plane instead: `health.js dataplane`.
 */

const ANSWER_WITHIN_MS = 3000

try {
  const [word] = process.argv.slice(2)
  const words = word === undefined ? readFileSync('/proc/1/cmdline', 'utf8').split('\0') : [word]
  const url = healthUrl(planeOf(words), process.env, readSecretFile)
  const response = await fetch(url, { signal: AbortSignal.timeout(ANSWER_WITHIN_MS) })
  await response.arrayBuffer()
  if (!response.ok) throw new Error(`${url} answered ${response.status}, not 200`)
} catch (error) {
  const { message, cause } = error as Error & { cause?: Error }
  process.stderr.write(`unhealthy: ${message}${cause instanceof Error ? ` (${cause.message})` : ''}\n`)
  process.exitCode = 1
}
