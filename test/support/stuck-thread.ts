import { execSync } from 'node:child_process'
import { writeSync } from 'node:fs'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { endRoomCode, locate, WHERE } from '../../dataplane/features/suspects/locate.ts'

/**
 * A program whose main thread never returns, in JavaScript (`loop`, `end`) or in a native call (`native`). A worker prints the line at
 * which the main thread is, or ends its code (`end`).
 */
const [how] = process.argv.slice(2)

/** A worker thread does not inherit the TypeScript loader of its process. */
const WORKER = `
  const { register } = await import(${JSON.stringify(import.meta.resolve('tsx/esm/api'))})
  register()
  await import(${JSON.stringify(import.meta.url)})
`

/** Time in which the main thread receives the worker's message and blocks. */
const BLOCKED_AFTER_MS = 1000
const LOCATE_MS = 3000

function block(): void {
  const shared = globalThis as { [WHERE]?: () => string }
  shared[WHERE] = () => JSON.stringify({ turn: { hook: 'onTick' }, stack: new Error('where').stack })
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(WORKER)}`), {
    workerData: how,
  })
  worker.once('message', function standStill() {
    if (how === 'end')
      setTimeout(() => {
        process.stdout.write('"the thread continues"')
        worker.terminate()
      })
    if (how !== 'native') for (;;);
    execSync('sleep 60')
  })
}

function watch(): void {
  parentPort!.postMessage('ready')
  setTimeout(async () => {
    if (workerData === 'end') return endRoomCode(LOCATE_MS)
    const at = await locate(LOCATE_MS)
    writeSync(1, JSON.stringify(at?.frame ?? null))
    process.kill(process.pid, 'SIGKILL')
  }, BLOCKED_AFTER_MS)
}

if (isMainThread) block()
else watch()
