import { execSync } from 'node:child_process'
import { Worker } from 'node:worker_threads'
import { WHERE } from '../../../dataplane/watchdog/locate.ts'

// A thread that stands still, in JavaScript or in a native call, and another one that says where it is, or ends its code.
const shared = globalThis as { [WHERE]?: () => string }
shared[WHERE] = () => JSON.stringify({ turn: { hook: 'onTick' }, stack: new Error('where').stack })
const [how] = process.argv.slice(2)
const worker = new Worker(new URL('./worker.mjs', import.meta.url), { workerData: how })
worker.once('message', function standStill() {
  if (how === 'end')
    setTimeout(() => {
      process.stdout.write('"the thread continues"')
      worker.terminate()
    })
  if (how !== 'native') for (;;);
  execSync('sleep 60')
})
