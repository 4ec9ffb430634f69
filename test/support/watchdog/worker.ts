import { writeSync } from 'node:fs'
import { parentPort, workerData } from 'node:worker_threads'
import { endRoomCode, locate } from '../../../dataplane/watchdog/locate.ts'

parentPort!.postMessage('ready')
// The main thread has had time to stand still once it has been given the message.
setTimeout(async () => {
  if (workerData === 'end') return endRoomCode(3000)
  const at = await locate(3000)
  writeSync(1, JSON.stringify(at?.frame ?? null))
  process.kill(process.pid, 'SIGKILL')
}, 1000)
