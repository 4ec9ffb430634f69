import { stripVTControlCharacters } from 'node:util'
import { describe, expect, it } from 'vitest'
import { createLog, setLogLevel } from './log.ts'

function lines(options: { isTTY?: boolean } = {}) {
  const written: string[] = []
  return { written, output: { ...options, write: (line: string) => void written.push(line) } }
}

describe('the log', () => {
  it('is JSON lines with time, level, base fields and message', () => {
    const { written, output } = lines()
    createLog({ logLevel: 'info', logFormat: 'auto' }, { node_id: 'node_1' }, output).info(
      { room_id: 'arena:a' },
      'hello',
    )
    expect(written.map((line) => JSON.parse(line))).toEqual([
      {
        level: 'info',
        time: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
        node_id: 'node_1',
        room_id: 'arena:a',
        msg: 'hello',
      },
    ])
  })

  it('leaves out what is below its level', () => {
    const { written, output } = lines()
    createLog({ logLevel: 'warn', logFormat: 'json' }, {}, output).info('quiet')
    expect(written).toEqual([])
  })

  it('takes another level at once, also in children that were made before', () => {
    const { written, output } = lines()
    const log = createLog({ logLevel: 'warn', logFormat: 'json' }, {}, output)
    const child = log.child({ room_id: 'arena:a' })
    setLogLevel(log, 'debug')
    child.debug('now')
    setLogLevel(log, 'error')
    child.info('no more')
    expect(written.map((line) => JSON.parse(line).msg)).toEqual([
      'log level changed',
      'now',
      'log level changed',
    ])
  })

  it('never lets a token, secret, payload or room state through', () => {
    const { written, output } = lines()
    createLog({ logLevel: 'info', logFormat: 'json' }, {}, output).info(
      {
        token: 'hunter2',
        hello: { resume_token: 'hunter2', project_id: 'prj_1' },
        request: { headers: { authorization: 'hunter2' } },
        message: { data: { x: 'hunter2' } },
        room: { state: { cards: 'hunter2' } },
        connection: { state: 'open' },
      },
      'oops',
    )
    expect(written.join()).not.toContain('hunter2')
    expect(JSON.parse(written[0]!)).toMatchObject({
      hello: { project_id: 'prj_1' },
      connection: { state: 'open' },
    })
  })

  it('shows an error with its stack', () => {
    const { written, output } = lines()
    createLog({ logLevel: 'info', logFormat: 'json' }, {}, output).error(
      { err: new Error('broken') },
      'failed',
    )
    expect(JSON.parse(written[0]!).err).toMatchObject({
      message: 'broken',
      stack: expect.stringContaining('log.test'),
    })
  })

  it('is for people on a terminal, also where it is no stream, as in the thread of the watchdog', () => {
    const { written, output } = lines({ isTTY: true })
    const log = createLog({ logLevel: 'info', logFormat: 'auto' }, { node_id: 'node_1' }, output)
    log.info({ room_id: 'arena:a' }, 'hello')
    expect(stripVTControlCharacters(written.join(''))).toMatch(
      /^\[[\d:.]+\] INFO.*: hello .*"room_id":"arena:a"/,
    )
  })

  it('is JSON lines on a terminal when asked for', () => {
    const { written, output } = lines({ isTTY: true })
    createLog({ logLevel: 'info', logFormat: 'json' }, {}, output).info('hello')
    expect(JSON.parse(written[0]!).msg).toBe('hello')
  })
})
