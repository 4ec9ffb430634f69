import { describe, expect, it } from 'vitest'
import { parseArguments } from './arguments.ts'

const message = (...words: string[]) => {
  const request = parseArguments(words)
  return request.kind === 'mistake' ? request.message : request
}

describe('the words behind roomful', () => {
  it.each(['dev', 'control', 'dataplane', 'rekey'] as const)('%s runs it', (command) => {
    expect(parseArguments([command])).toEqual({ kind: 'run', command })
  })

  it('ask for help, in all or for one command, and for the version', () => {
    expect(parseArguments(['--help'])).toEqual({ kind: 'help' })
    expect(parseArguments(['-h'])).toEqual({ kind: 'help' })
    expect(parseArguments(['control', '--help'])).toEqual({ kind: 'help', command: 'control' })
    expect(parseArguments(['--version'])).toEqual({ kind: 'version' })
  })

  it('may end with a command that runs beside dev', () => {
    expect(parseArguments(['dev', '--', 'vite', '--port', '1'])).toEqual({
      kind: 'run',
      command: 'dev',
      beside: ['vite', '--port', '1'],
    })
    expect(message('dev', '--')).toContain('behind -- there is no command')
    expect(message('control', '--', 'vite')).toContain('control runs alone')
  })

  it('are told what is wrong with them', () => {
    expect(message()).toBe('a command is missing; there are dev, control, dataplane, rekey')
    expect(message('dve')).toBe('dve is no command; there are dev, control, dataplane, rekey')
    expect(message('toString')).toContain('is no command')
    expect(message('dev', '--port=1')).toContain('--port=1 is no option')
    expect(message('dev', 'control')).toContain('control is one word too many')
  })
})
