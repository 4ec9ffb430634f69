import { writeSync } from 'node:fs'
import { parentPort } from 'node:worker_threads'
import { locate } from '../../../dataplane/watchdog/locate.ts'

parentPort!.postMessage('ready')
// The main thread has had time to stand still once it has been given the message.
setTimeout(async () => {
  const at = await locate(3000)
  writeSync(1, JSON.stringify(at?.frame ?? null))
  process.kill(process.pid, 'SIGKILL')
}, 1000)
