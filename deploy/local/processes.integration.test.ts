import { expect, it } from 'vitest'
import { Child, type Exit } from './processes.ts'

it('a process continues if its output cannot be stored', async () => {
  const ends: [exit: Exit, asked: boolean][] = []
  const child = new Child({
    name: 'talker',
    program: process.execPath,
    run: () => ({
      words: ['-e', "console.log('ready'); setInterval(() => console.log('more'), 5)"],
      env: process.env,
    }),
    ready: /ready/,
    logFile: '/no such folder/talker.log',
    reaper: { watch: () => undefined, release: () => undefined },
    onExit: (_child, exit, asked) => ends.push([exit, asked]),
  })
  await child.start()
  expect(child.state).toBe('ready')
  process.kill(child.pid!, 'SIGKILL')
  await child.ended
  expect(ends).toEqual([[{ code: null, signal: 'SIGKILL' }, false]])
})
