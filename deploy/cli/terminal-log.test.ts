import { stripVTControlCharacters } from 'node:util'
import { describe, expect, it } from 'vitest'
import { createLog } from '../../shared/log.ts'
import { TerminalLog } from './terminal-log.ts'

/** A log for a developer, and its output at the terminal, without times. */
function shown() {
  let text = ''
  const terminal = new TerminalLog({ write: (more) => (text += more) })
  const log = createLog({ logLevel: 'debug' }, {}, terminal)
  const room = log.child({ room_id: 'board:default', project_id: 'prj_1' })
  const lines = (): string[] =>
    stripVTControlCharacters(text)
      .trimEnd()
      .split('\n')
      .map((line) => line.replace(/^\d\d:\d\d:\d\d /, ''))
  return { terminal, log, room, lines }
}

describe('TerminalLog', () => {
  it('shows the table first, also after earlier lines', () => {
    const { terminal, log, lines } = shown()
    log.warn('before')
    terminal.begin('what is where\n')
    log.warn({ port: 1 }, 'after')
    expect(lines()).toEqual(['what is where', 'before', 'after: port 1'])
  })

  it('shows one line per player, failure, reload, line of room logic and warning, without JSON', () => {
    const { terminal, log, room, lines } = shown()
    terminal.begin('table\n')
    room.debug({ member_id: 'mem_1', sub: 'ada', players: 1 }, 'member joined')
    room.debug({ member_id: 'mem_2', players: 2 }, 'member joined')
    room.debug({ member_id: 'mem_3', sub: 'eve', spectator: true, players: 2 }, 'member joined')
    room.debug({ member_id: 'mem_3', sub: 'eve', players: 3 }, 'member seated')
    room.debug({ member_id: 'mem_1', sub: 'ada', reason: 'kicked', players: 1 }, 'member left')
    const error = new TypeError('x is undefined')
    const file = `file://${process.cwd()}/rooms/board.ts?tsx-namespace=1`
    error.stack = `TypeError: x\n    at f (${process.cwd()}/node_modules/valibot/a.js:1:2)\n    at emit (${process.cwd()}/dataplane/room/handler-context.ts:9:5)\n    at Object.handle (${file}:23:5)`
    room.warn({ failed: 'messages.dot.handle', suppressed: 0, err: error }, 'the room logic failed')
    log.info({ file: `${process.cwd()}/rooms/board.ts`, room_type: 'board' }, 'room file reloaded')
    room.info({ round: 3 }, 'round over')
    log.error({ reason: `${process.cwd()}/rooms/a.ts cannot be loaded` }, 'room file failed')
    expect(lines()).toEqual([
      'table',
      'ada joined board:default, 1 player',
      'player mem_2 joined board:default, 2 players',
      'eve watches board:default, 2 players',
      'eve plays in board:default, 3 players',
      'ada left board:default (kicked), 1 player',
      'board:default: messages.dot.handle failed: TypeError: x is undefined (rooms/board.ts:23)',
      'rooms/board.ts reloaded',
      'board:default: round over: round 3',
      'room file failed: rooms/a.ts cannot be loaded',
    ])
  })

  it('shows one line for a turn that is cut off, with file and line', () => {
    const cut = {
      level: 'error',
      time: '2026-11-29T03:37:29.000Z',
      room_id: 'duel:a',
      hook: 'onMessage',
      limit_ms: 2000,
    }
    const lines: string[] = []
    const log = new TerminalLog({ write: (line) => void lines.push(line) })
    log.begin('')
    const at = `default.onMessage (${process.cwd()}/rooms/duel.ts:28:9)`
    log.write(JSON.stringify({ ...cut, at, msg: 'a turn did not return and was cut off' }))
    log.write(
      JSON.stringify({
        ...cut,
        failed: 'onMessage',
        err: { name: 'TurnCut', message: 'cut' },
        msg: 'failed',
      }),
    )
    expect(lines).toEqual([
      '',
      expect.stringContaining(
        'duel:a: onMessage did not return within 2000 ms and was cut off (rooms/duel.ts:28)',
      ),
    ])
  })

  it('shows the time of a slow turn', () => {
    const { terminal, room, lines } = shown()
    terminal.begin('table\n')
    room.warn({ hook: 'onTick', ms: 120 }, 'a turn of room code was slow')
    expect(lines()).toEqual([
      'table',
      expect.stringMatching(/: onTick took 120 ms, and the server did nothing else$/),
    ])
  })

  it('shows no requests, no keys and nothing else without use for a developer', () => {
    const { terminal, log, room, lines } = shown()
    terminal.begin('table\n')
    log.info({ method: 'POST', route: '/tokens', status: 200 }, 'request')
    log.debug({ session_id: 'ses_1' }, 'session connected')
    room.debug({ epoch: 1 }, 'room opened')
    room.info({ end: 'released', epoch: 1 }, 'room ended')
    expect(lines()).toEqual(['table'])
  })

  it('shows the reason if the process ends before the table', () => {
    const { log, lines } = shown()
    log.fatal('dev cannot start: port 4000 is taken')
    expect(lines()).toEqual(['dev cannot start: port 4000 is taken'])
  })
})
