// Preloaded into a process (`NODE_OPTIONS=--import=…`): says at its end how many files of OpenTelemetry's SDK it had loaded. The SDK's API,
// which does nothing by itself, is in every process: prom-client needs it.
import { createRequire } from 'node:module'

const { cache } = createRequire(import.meta.url)
const SDK = /@opentelemetry\/(?!api\/)/

process.on('exit', () => {
  const loaded = Object.keys(cache).filter((path) => SDK.test(path))
  process.stdout.write(`files of OpenTelemetry: ${loaded.length}\n`)
})
