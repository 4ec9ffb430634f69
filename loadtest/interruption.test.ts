import { EventEmitter } from 'node:events'
import { expect, it } from 'vitest'
import { FakeClock } from '../test/support/fake-clock.ts'
import { Interruption } from './interruption.ts'

function interruption() {
  const signals = new EventEmitter()
  const clock = new FakeClock()
  const heard: string[] = []
  const wish = new Interruption({
    process: signals as unknown as Pick<NodeJS.Process, 'on'>,
    clock,
    on_first: () => heard.push('first'),
    on_second: (exit_code) => heard.push(`second, ${exit_code}`),
  })
  return { signals, clock, heard, wish }
}

it('ends a run in order, and the second time at once', () => {
  const { signals, clock, heard, wish } = interruption()
  expect([wish.signal.aborted, wish.exit_code]).toEqual([false, undefined])
  signals.emit('SIGINT')
  expect([wish.signal.aborted, wish.exit_code, heard]).toEqual([true, 130, ['first']])
  clock.advance(2000)
  signals.emit('SIGTERM')
  expect([wish.exit_code, heard]).toEqual([130, ['first', 'second, 143']])
})

it('takes the Ctrl-C that a terminal and npm both pass on for one', () => {
  const { signals, clock, heard } = interruption()
  signals.emit('SIGINT')
  clock.advance(20)
  signals.emit('SIGINT')
  expect(heard).toEqual(['first'])
})
