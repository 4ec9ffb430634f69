import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const PROGRAM = fileURLToPath(new URL('../../test/support/stuck-thread.ts', import.meta.url))

/** What a thread finds out about one that stands still in this way, or what comes of its end. */
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

it('names file and line of a loop, and tells it from a native call', async () => {
  const [loop, native] = await Promise.all([located('loop'), located('native')])
  expect(JSON.parse(loop)).toMatch(/standStill .*stuck-thread\.ts:\d+/)
  expect(native).toBe('null')
})

it('ends a loop of room code, and the thread continues', async () => {
  expect(JSON.parse(await located('end'))).toBe('the thread continues')
})
