import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import type { Child } from '../../deploy/local/child.ts'
import type { Processes } from './processes.ts'

/** What a process occupies, bytes. */
export interface Memory {
  /** Objects that are in use, after a collection; buffers outside the heap included. */
  readonly used: number
  /** What the system has given to the process. */
  readonly rss: number
}

const WITHIN_MS = 10_000
/** What one collection leaves behind that only the next finds. */
const COLLECTIONS = 3

/** Asks a node's process, through its inspector, to collect its garbage and to say what it occupies. Opens the inspector the first time. */
export async function memoryOf(processes: Processes, child: Child): Promise<Memory> {
  const inspector = new WebSocket(await inspectorUrl(processes, child))
  try {
    await new Promise<void>((resolve, reject) => {
      inspector.once('open', resolve)
      inspector.once('error', reject)
    })
    for (let i = 0; i < COLLECTIONS; i++) await ask(inspector, 'HeapProfiler.collectGarbage')
    const expression = 'JSON.stringify(process.memoryUsage())'
    const { result } = await ask<{ result: { value: string } }>(inspector, 'Runtime.evaluate', { expression })
    const { heapUsed, external, rss } = JSON.parse(result.value) as NodeJS.MemoryUsage
    return { used: heapUsed + external, rss }
  } finally {
    inspector.close()
  }
}

async function inspectorUrl(processes: Processes, child: Child): Promise<string> {
  const deadline = performance.now() + WITHIN_MS
  for (let asked = false; performance.now() < deadline; asked = true) {
    const found = /Debugger listening on (ws:\S+)/.exec(await processes.printed(child))
    if (found?.[1]) return found[1]
    if (!asked && child.pid !== undefined) process.kill(child.pid, 'SIGUSR1')
    await sleep(20)
  }
  throw new Error(`${child.name} has no inspector`)
}

function ask<T>(inspector: WebSocket, method: string, params: object = {}): Promise<T> {
  const id = Math.floor(Math.random() * 1e9)
  return new Promise((resolve, reject) => {
    const hear = (data: Buffer): void => {
      const answer = JSON.parse(data.toString()) as { id?: number; result?: T; error?: { message: string } }
      if (answer.id !== id) return
      inspector.off('message', hear)
      if (answer.error) reject(new Error(`${method}: ${answer.error.message}`))
      else resolve(answer.result as T)
    }
    inspector.on('message', hear)
    inspector.once('close', () => reject(new Error(`${method} was not answered`)))
    inspector.send(JSON.stringify({ id, method, params }))
  })
}
