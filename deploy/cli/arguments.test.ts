import { describe, expect, it } from 'vitest'
import { helpText, parseArguments } from './arguments.ts'

const message = (...words: string[]) => {
  const request = parseArguments(words)
  return request.kind === 'mistake' ? request.message : request
}

describe('the command line of roomful', () => {
  it.each(['dev', 'control', 'dataplane', 'rekey'] as const)('runs the command %s', (command) => {
    expect(parseArguments([command])).toEqual({ kind: 'run', command })
  })

  it('requests help for all, a command, a topic or a variable, and the version', () => {
    expect(parseArguments(['--help'])).toEqual({ kind: 'help' })
    expect(parseArguments(['-h'])).toEqual({ kind: 'help' })
    expect(parseArguments(['control', '--help'])).toEqual({ kind: 'help', command: 'control' })
    expect(parseArguments(['--help', 'otel'])).toEqual({ kind: 'help', about: 'otel' })
    expect(parseArguments(['--help', 'redsi'])).toEqual({
      kind: 'mistake',
      message: 'there is no help about redsi, but about redis',
    })
    expect(parseArguments(['--version'])).toEqual({ kind: 'version' })
  })

  it('accepts each option once, as a separate word, and with a value only if it has one', () => {
    expect(message('dataplane', '--workers', '2', '--workers', '3')).toMatch('--workers is given twice')
    expect(message('dev', '--help=logs')).toMatch('--help accepts no value, but has logs')
    expect(message('--version=1')).toMatch('--version accepts no value, but has 1')
    expect(message('-hv')).toMatch('-hv is no option')
  })

  it('prints a help that fits a screen: ports first, and the rest by topic', () => {
    const help = helpText()
    expect(help.split('\n').length).toBeLessThan(36)
    expect(help).toMatch(/CONTROL_PORT +3000[\s\S]*--help redis/)
    expect(help).not.toContain('KEY_PREFIX')
    expect(helpText({ about: 'redis' })).toMatch(/^ {2}REDIS_URL [\s\S]*KEY_PREFIX/)
    expect(helpText({ command: 'control' })).not.toContain('WS_PORT')
    expect(helpText({ command: 'dataplane' })).toMatch(/It needs:\s+ROOMS_DIR/)
    expect(helpText({ about: 'WS_PORT' }).match(/^ {2}\S+/gm)).toEqual(['  WS_PORT'])
  })

  it('passes all words after admin, cluster and types to that command', () => {
    expect(parseArguments(['admin', 'nodes', '--json'])).toEqual({
      kind: 'admin',
      words: ['nodes', '--json'],
    })
    expect(message('--workers', '2', 'admin')).toContain('admin comes before its options')
    expect(parseArguments(['cluster', '--nodes', '2'])).toEqual({ kind: 'cluster', words: ['--nodes', '2'] })
    expect(message('--workers', '2', 'cluster')).toContain('cluster comes before its options')
    expect(parseArguments(['types', '--help'])).toEqual({ kind: 'types', words: ['--help'] })
    expect(message('--workers', '2', 'types')).toContain('types comes before its options')
  })

  it('may end with a command that runs next to dev', () => {
    expect(parseArguments(['dev', '--', 'vite', '--port', '1'])).toEqual({
      kind: 'run',
      command: 'dev',
      beside: ['vite', '--port', '1'],
    })
    expect(message('dev', '--')).toContain('there is no command after --')
    expect(message('control', '--', 'vite')).toContain('control runs alone')
  })

  it('opens dev to the network with --lan, also at the end of the command, where npm run dev puts it', () => {
    expect(parseArguments(['dev', '--lan'])).toEqual({ kind: 'run', command: 'dev', lan: true })
    const request = { kind: 'run', command: 'dev', beside: ['vite'], lan: true }
    expect(parseArguments(['dev', '--lan', '--', 'vite'])).toEqual(request)
    expect(parseArguments(['dev', '--', 'vite', '--lan'])).toEqual(request)
    expect(message('control', '--lan')).toContain('--lan is for roomful dev')
  })

  it('accepts a table name of postgres-schema, or none', () => {
    expect(parseArguments(['postgres-schema'])).toEqual({ kind: 'schema', table: 'rooms' })
    expect(parseArguments(['postgres-schema', 'game.rooms'])).toEqual({ kind: 'schema', table: 'game.rooms' })
    expect(message('postgres-schema', 'a', 'b')).toContain('needs the name of a table, and nothing else')
  })

  it('gets an error for each wrong word', () => {
    expect(message()).toBe(
      'a command is missing; there are dev, cluster, control, dataplane, rekey, admin, types, postgres-schema',
    )
    expect(message('dve')).toBe('dve is not a command. Did you mean dev?')
    expect(message('toString')).toContain(
      'is not a command; there are dev, cluster, control, dataplane, rekey, admin, types, postgres-schema',
    )
    expect(message('dev', '--hlep')).toBe('--hlep is no option. Did you mean --help?')
    expect(message('dev', '--ws-port=1')).toContain('WS_PORT=1 in the environment may be what you mean')
    expect(message('dev', 'control')).toContain('control is one word too many')
  })
})
