// TypeScript in a worker thread needs a separate loader.
import { register } from 'tsx/esm/api'

register()
const { serve } = await import('./worker.ts')
serve()
