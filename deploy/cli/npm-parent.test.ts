import { expect, it, vi } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { endWithNpm } from './npm-parent.ts'

const running = (env: NodeJS.ProcessEnv) => ({ env, pid: 100, ppid: 50, kill: vi.fn(() => true as const) })

it('ends a process whose npm is gone, as SIGTERM does, and once', () => {
  const clock = new FakeClock()
  const self = running({ npm_lifecycle_event: 'start' })
  endWithNpm(self, clock)
  clock.advance(60_000)
  expect(self.kill).not.toHaveBeenCalled()
  self.ppid = 1
  clock.advance(60_000)
  expect(self.kill.mock.calls).toEqual([[100, 'SIGTERM']])
})

it('leaves a process alone that npm did not start', () => {
  const clock = new FakeClock()
  const self = running({})
  endWithNpm(self, clock)
  self.ppid = 1
  clock.advance(60_000)
  expect(self.kill).not.toHaveBeenCalled()
})
