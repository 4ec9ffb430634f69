import { describe, expect, it, vi } from 'vitest'
import { createLog } from '../../shared/log.ts'
import type { UnhandledErrors } from '../../shared/unhandled.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { endWithNpm, type Host, live, type Service } from './service.ts'

/** A process that records how it was ended, and does not end. */
function fakeHost() {
  const listeners = new Map<string, (argument: unknown) => void>()
  const codes: unknown[] = []
  let ended = (): void => {}
  const exited = new Promise<void>((resolve) => {
    ended = resolve
  })
  const host: Host = {
    on: (event, listener) => void listeners.set(event, listener),
    exit: (code) => {
      codes.push(code)
      ended()
    },
  }
  return {
    host,
    codes,
    exited,
    send: (event: string, argument?: unknown) => listeners.get(event)?.(argument),
  }
}

function setup(start: () => Promise<Service>, level: 'info' | 'error' | 'silent' = 'info') {
  const lines: string[] = []
  const log = createLog({ logLevel: level }, {}, { write: (line) => void lines.push(line) })
  const process = fakeHost()
  const clock = new FakeClock()
  live('control', start, log, process.host, clock)
  return { ...process, clock, lines, messages: () => lines.map((line) => JSON.parse(line).msg as string) }
}

const nextTurn = () => new Promise((resolve) => setImmediate(resolve))
const addresses = { api: 'http://127.0.0.1:3000', metrics: 'http://127.0.0.1:9100' }

describe('the life of a process', () => {
  it('logs its addresses at every log level', async () => {
    const { messages } = setup(async () => ({ addresses, close: async () => {} }), 'error')
    await nextTurn()
    expect(messages()).toEqual(['control ready: api http://127.0.0.1:3000, metrics http://127.0.0.1:9100'])
  })

  it('does not log addresses that the terminal already shows', async () => {
    const { messages } = setup(async () => ({ addresses, close: async () => {}, announced: true }))
    await nextTurn()
    expect(messages()).toEqual([])
  })

  it('waits for a pending start before it closes', async () => {
    const done: string[] = []
    let started = (_service: Service): void => {}
    const { send, exited, codes } = setup(
      () =>
        new Promise((resolve) => {
          started = resolve
        }),
    )
    send('SIGINT')
    await nextTurn()
    expect(codes).toEqual([])
    started({ addresses, close: async () => void done.push('closed') })
    await exited
    expect([codes, done]).toEqual([[0], ['closed']])
  })

  it('exits with 0, without a fatal log line, if it is stopped and then cannot start', async () => {
    let fail = (_error: Error): void => {}
    const { send, exited, codes, lines, messages } = setup(
      () =>
        new Promise<Service>((_, reject) => {
          fail = reject
        }),
    )
    send('SIGTERM')
    fail(new Error('the store does not answer'))
    await exited
    await nextTurn()
    expect([codes, lines.filter((line) => line.includes('fatal'))]).toEqual([[0], []])
    expect(messages().at(-1)).toBe('the process has stopped before it could start')
  })

  it('exits immediately with 1 after a second signal', async () => {
    const { send, codes } = setup(async () => ({ addresses, close: () => new Promise(() => {}) }))
    send('SIGTERM')
    send('SIGTERM')
    expect(codes).toEqual([1])
  })

  it('exits with 1 after an unexpected error of the start, and logs its stack', async () => {
    const { exited, codes, lines } = setup(() => Promise.reject(new TypeError('x is no function')))
    await exited
    expect(codes).toEqual([1])
    expect(lines.join()).toMatch(/control cannot start: x is no function/)
    expect(lines.join()).toMatch(/stack.*service\.test\.ts/)
  })

  it('exits with 1 if closing fails', async () => {
    const { send, exited, codes } = setup(async () => ({
      addresses,
      close: () => Promise.reject(new Error('stuck')),
    }))
    send('SIGTERM')
    await exited
    expect(codes).toEqual([1])
  })

  it('exits with 1 after an exception before it serves, and logs it', () => {
    const { send, codes, messages } = setup(() => new Promise(() => {}))
    send('uncaughtException', new Error('not expected'))
    expect(codes).toEqual([1])
    expect(messages()).toHaveLength(1)
  })

  it('logs a rejection that a room file causes while it is loaded, and serves', async () => {
    const { send, codes, messages } = setup(async () => ({ addresses, close: async () => {} }))
    send('unhandledRejection', new Error('of a file'))
    await nextTurn()
    expect(codes).toEqual([])
    expect(messages()).toEqual(['a promise was rejected and not handled', expect.stringContaining('ready')])
  })

  /** A service that handles uncaught errors. */
  const dealing = (drains: (number | undefined)[], close: () => Promise<void>, own: boolean): Service => ({
    addresses,
    close: async (drainMs) => {
      drains.push(drainMs)
      await close()
    },
    unhandled: { rejection: () => {}, exception: () => !own } as unknown as UnhandledErrors,
  })

  it('continues after rejections, and after exceptions of other code', async () => {
    const { send, codes } = setup(async () => dealing([], async () => {}, false))
    await nextTurn()
    send('unhandledRejection', new Error('stray'))
    send('uncaughtException', new Error('of a room'))
    await nextTurn()
    expect(codes).toEqual([])
  })

  it('notes the reason, drains within seconds and exits with 1 after an exception of its own code', async () => {
    const drains: (number | undefined)[] = []
    const noted: number[] = []
    const failing = () => void noted.push(drains.length)
    const { send, exited, codes } = setup(async () => ({ ...dealing(drains, async () => {}, true), failing }))
    await nextTurn()
    send('uncaughtException', new Error('own'))
    await exited
    expect([codes, drains, noted]).toEqual([[1], [2000], [0]])
  })

  it('waits at most five seconds for a drain after an exception', async () => {
    const { send, codes, clock } = setup(async () => dealing([], () => new Promise(() => {}), true))
    await nextTurn()
    send('uncaughtException', new Error('own'))
    await nextTurn()
    clock.advance(4999)
    expect(codes).toEqual([])
    clock.advance(1)
    expect(codes).toEqual([1])
  })

  it.each([
    ['NodeIdInUse', 2],
    ['NodeReplaced', 3],
  ])('exits immediately with a reason if another process has its name: %s, with %i', async (reason, code) => {
    const error = Object.assign(new Error('another process has the name'), { name: reason })
    const starting = setup(() => Promise.reject(error))
    await starting.exited
    const close = () => Promise.reject(new Error('not to be called'))
    const running = setup(async () => ({ addresses, close, ended: Promise.reject(error) }))
    await running.exited
    expect([starting.codes, running.codes]).toEqual([[code], [code]])
    expect(starting.messages()).toEqual(['control cannot start: another process has the name'])
    expect(running.messages().at(-1)).toBe('control failed: another process has the name')
  })

  it('closes and exits with 0 when its service has ended', async () => {
    const done: string[] = []
    const service = { addresses, close: async () => void done.push('closed'), ended: Promise.resolve() }
    const { exited, codes } = setup(async () => service)
    await exited
    expect([codes, done]).toEqual([[0], ['closed']])
  })
})

describe('endWithNpm', () => {
  const running = (env: NodeJS.ProcessEnv) => ({ env, pid: 100, ppid: 50, kill: vi.fn(() => true as const) })

  it('ends a process once, as SIGTERM does, when its npm has ended', () => {
    const clock = new FakeClock()
    const self = running({ npm_lifecycle_event: 'start' })
    endWithNpm(self, clock)
    clock.advance(60_000)
    expect(self.kill).not.toHaveBeenCalled()
    self.ppid = 1
    clock.advance(60_000)
    expect(self.kill.mock.calls).toEqual([[100, 'SIGTERM']])
  })

  it('does not end a process that npm did not start', () => {
    const clock = new FakeClock()
    const self = running({})
    endWithNpm(self, clock)
    self.ppid = 1
    clock.advance(60_000)
    expect(self.kill).not.toHaveBeenCalled()
  })
})
