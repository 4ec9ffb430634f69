import { EventEmitter } from 'node:events'
import type { Redis } from 'ioredis'
import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import { Connection, Observers } from './connection.ts'

function setup() {
  const clock = new FakeClock()
  const lines: Record<string, unknown>[] = []
  const log = pino({ level: 'info', base: {} }, { write: (line) => void lines.push(JSON.parse(line)) })
  const stream = { remoteAddress: '10.0.0.1', remotePort: 6379, cork() {}, uncork() {} }
  const redis = Object.assign(new EventEmitter(), { status: 'ready', stream })
  const options = { clock, log, timeoutMs: 2000, observers: new Observers() }
  return { clock, lines, redis, connection: new Connection(redis as unknown as Redis, options) }
}

describe('Connection', () => {
  it('logs its server after an outage, because a failover leads to another one', () => {
    const { clock, lines, redis } = setup()
    redis.emit('ready')
    redis.emit('close')
    clock.advance(4000)
    redis.stream.remoteAddress = '10.0.0.2'
    redis.emit('ready')
    expect(lines.at(-1)).toMatchObject({
      msg: 'the store connection is back',
      outage_ms: 4000,
      server: '10.0.0.2:6379',
    })
  })

  it('logs each reason of an outage once, also while the library still looks for the master', () => {
    const { lines, redis } = setup()
    redis.status = 'connecting'
    for (const reason of ['no master', 'no master', 'refused', 'no master'])
      redis.emit('error', new Error(reason))
    redis.emit('close')
    expect(lines.map(({ msg, reason }) => [msg, reason])).toEqual([
      ['no connection to the store yet', 'no master'],
      ['no connection to the store yet', 'refused'],
    ])
    redis.emit('ready')
    redis.emit('close')
    redis.emit('error', new Error('refused'))
    expect(lines.slice(3).map(({ msg, reason }) => [msg, reason])).toEqual([
      ['the store connection is lost', 'the server closed it'],
      ['no connection to the store yet', 'refused'],
    ])
  })

  it.each(["Stream isn't writeable and enableOfflineQueue options is false", 'Connection is closed.'])(
    'reports "%s" as a lost connection',
    async (message) => {
      const command = setup().connection.run('inspect', () => Promise.reject(new Error(message)))
      await expect(command).rejects.toThrow('the store gave no answer to inspect: the connection was lost')
    },
  )
})
