import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const PROGRAM = fileURLToPath(new URL('../../../test/support/stuck-thread.ts', import.meta.url))

/** Returns the position that a thread finds of one that is blocked in this way, or the result of `endRoomCode`. */
async function located(how: 'loop' | 'native' | 'end'): Promise<string> {
  const child = spawn(process.execPath, ['--import', 'tsx', PROGRAM, how], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    output += part
  })
  await once(child, 'close')
  return output
}

it('locate returns file and line of a loop, and undefined for a native call', async () => {
  const [loop, native] = await Promise.all([located('loop'), located('native')])
  expect(JSON.parse(loop)).toMatch(/standStill .*stuck-thread\.ts:\d+/)
  expect(native).toBe('null')
})

it('endRoomCode ends a loop of room code, and the thread continues', async () => {
  expect(JSON.parse(await located('end'))).toBe('the thread continues')
})
