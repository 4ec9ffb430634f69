import { execSync } from 'node:child_process'
import { Worker } from 'node:worker_threads'
import { WHERE } from '../../../dataplane/watchdog/locate.ts'

// A thread that stands still, in JavaScript or in a native call, and another one that says where it is.
const shared = globalThis as { [WHERE]?: () => string }
shared[WHERE] = () => JSON.stringify({ stack: new Error('where').stack })
const worker = new Worker(new URL('./worker.mjs', import.meta.url))
worker.once('message', function standStill() {
  if (process.argv[2] === 'loop') for (;;);
  execSync('sleep 60')
})
