// TypeScript in a worker thread needs a loader of its own.
import { register } from 'tsx/esm/api'

register()
await import('./worker.ts')
