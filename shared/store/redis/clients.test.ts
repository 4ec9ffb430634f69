import { EventEmitter } from 'node:events'
import type { Redis } from 'ioredis'
import { expect, it } from 'vitest'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import { SentinelWatch } from './clients.ts'

/** A watch over two Sentinels that the test controls. */
function watching() {
  const clock = new FakeClock()
  const sentinels = [new EventEmitter(), new EventEmitter()]
  for (const sentinel of sentinels) Object.assign(sentinel, { subscribe: async () => undefined })
  const watch = new SentinelWatch(sentinels as Redis[], { masterName: 'games', clock })
  let switches = 0
  watch.onSwitch(() => switches++)
  const say = (nth: number, text: string) => sentinels[nth]!.emit('message', '+switch-master', text)
  return { clock, watch, say, switches: () => switches }
}

it('reports a master once that all Sentinels report, and ignores other masters', () => {
  const { say, switches } = watching()
  say(0, 'games a 1 b 2')
  say(1, 'games a 1 b 2')
  say(1, 'films c 3 d 4')
  expect(switches()).toBe(1)
  say(0, 'games b 2 a 1')
  expect(switches()).toBe(2)
})

it('returns the successor of a master that a Sentinel still names, and forgets it after a while', () => {
  const { clock, watch, say } = watching()
  expect(watch.successorOf('a:1')).toBeUndefined()
  say(0, 'games a 1 b 2')
  expect(watch.successorOf('a:1')).toEqual({ host: 'b', port: 2 })
  expect(watch.successorOf('b:2')).toBeUndefined()
  clock.advance(5000)
  expect(watch.successorOf('a:1')).toBeUndefined()
})

it('returns no successor of the first master after it was appointed again', () => {
  const { watch, say } = watching()
  say(0, 'games a 1 b 2')
  say(0, 'games b 2 a 1')
  expect(watch.successorOf('a:1')).toBeUndefined()
  expect(watch.successorOf('b:2')).toEqual({ host: 'a', port: 1 })
})
