import childProcess, { execSync } from 'node:child_process'
import crypto, { pbkdf2Sync } from 'node:crypto'
import { createContext, runInContext } from 'node:vm'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { closeBuiltins, forbidCalls } from './forbidden-calls.ts'

describe('Calls that are forbidden in room code', () => {
  const ended: unknown[][] = []
  const process = {
    pid: 17,
    exit: (...parameters: unknown[]) => void ended.push(['exit', ...parameters]),
    reallyExit: (...parameters: unknown[]) => void ended.push(['reallyExit', ...parameters]),
    _kill: (...parameters: unknown[]) => ended.push(['_kill', ...parameters]) > 0,
    abort: () => void ended.push(['abort']),
    kill: (...parameters: unknown[]) => ended.push(['kill', ...parameters]) > 0,
  }
  const original = { ...process }
  let inRoomCode = true
  let allow: () => void

  beforeEach(() => {
    inRoomCode = true
    ended.length = 0
    allow = forbidCalls({ process: process as never, childProcess, crypto }, () => inRoomCode)
  })
  afterEach(() => allow())

  it('end no process', () => {
    for (const end of [
      () => process.exit(1),
      () => process.abort(),
      () => process.kill(17, 'SIGKILL'),
      () => process.kill(0, 'SIGTERM'),
      () => process.kill(-17),
      () => process.kill('17', 'SIGKILL'),
      () => process.kill({ valueOf: () => 17 }, 'SIGKILL'),
      () => process.reallyExit(1),
      () => process._kill(17, 9),
    ])
      expect(end).toThrow('it may not end the process')
    expect(ended).toEqual([])
  })

  it('wait for no other process, however they are imported', () => {
    expect(() => childProcess.execFileSync('true')).toThrow('room code called execFileSync')
    expect(() => childProcess.spawnSync('true')).toThrow('use the asynchronous call, in a task')
    expect(() => execSync('true')).toThrow('room code called execSync')
  })

  it('hash for at most as long as the login of a database takes', () => {
    expect(() => pbkdf2Sync('password', 'salt', 30_000_000, 64, 'sha512')).toThrow(
      '30000000 rounds would stop all rooms',
    )
    expect(pbkdf2Sync('password', 'salt', 10, 16, 'sha256')).toHaveLength(16)
  })

  it('are allowed in other code, and for other processes', () => {
    process.kill(18, 'SIGTERM')
    process.kill(17, 0)
    inRoomCode = false
    process.exit(0)
    expect(execSync('echo done').toString()).toBe('done\n')
    expect(ended).toEqual([
      ['kill', 18, 'SIGTERM'],
      ['kill', 17, 0],
      ['exit', 0],
    ])
  })

  it('are restored when the returned function is called', () => {
    allow()
    expect(process).toEqual(original)
    expect(execSync('echo done').toString()).toBe('done\n')
  })
})

describe('JavaScript built-ins that are closed', () => {
  // In another realm, because closed built-ins cannot be opened again.
  let realm: object
  beforeEach(() => {
    realm = createContext({})
    closeBuiltins(runInContext('[Object, Array, Function, String, Number, Boolean]', realm))
  })
  const run = (code: string): unknown => runInContext(`'use strict'; ${code}`, realm)

  it.each([
    'Object.values({})["constructor"].count = 1',
    '[...[]]["__proto__"].count = 1',
    '({ ...{} })["constructor"]["prototype"].count = 1',
    '({})["hasOwnProperty"].call = 1',
    '"text"["constructor"].count = 1',
    '(1)["toFixed"].count = 1',
    '[]["constructor"]["from"].count = 1',
    '[]["filter"]["constructor"].count = 1',
  ])('take no property from code that was led to them: %s', (code) => {
    expect(() => run(code)).toThrow('object is not extensible')
  })

  it('work as before', () => {
    expect(
      run(
        'const a = { b: [1] }; a.toString = () => "a"; a.constructor = 1; class B extends Array {}; B.of(1).c = 1; String(a)',
      ),
    ).toBe('a')
  })
})
