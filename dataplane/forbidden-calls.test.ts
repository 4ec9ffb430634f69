import { beforeEach, describe, expect, it } from 'vitest'
import { forbidCalls } from './forbidden-calls.ts'

describe('Calls that are forbidden in room code', () => {
  const made: unknown[][] = []
  const call =
    (name: string) =>
    (...parameters: unknown[]) =>
      made.push([name, ...parameters]) > 0
  const process = {
    pid: 17,
    exit: call('exit'),
    reallyExit: call('reallyExit'),
    _kill: call('_kill'),
    abort: call('abort'),
    kill: call('kill'),
    emit: call('emit'),
    disconnect: call('disconnect'),
    removeAllListeners: call('removeAllListeners'),
    setUncaughtExceptionCaptureCallback: call('setUncaughtExceptionCaptureCallback'),
  }
  const childProcess = {
    execSync: call('execSync'),
    execFileSync: call('execFileSync'),
    spawnSync: call('spawnSync'),
  }
  const crypto = {
    pbkdf2Sync: call('pbkdf2Sync'),
    scryptSync: call('scryptSync'),
    generatePrimeSync: call('generatePrimeSync'),
    generateKeyPairSync: call('generateKeyPairSync'),
  }
  const atomics = { wait: call('wait') }
  const modules = { process, childProcess, crypto, atomics } as never
  let inRoomCode = true
  forbidCalls(modules, () => inRoomCode)

  beforeEach(() => {
    inRoomCode = true
    made.length = 0
  })

  it.each<[what: string, end: () => void]>([
    ['exit', () => process.exit(1)],
    ['abort', () => process.abort()],
    ['kill', () => process.kill(17, 'SIGKILL')],
    ['kill of its group', () => process.kill(0, 'SIGTERM')],
    ['kill of a group', () => process.kill(-17)],
    ['kill of a text', () => process.kill('17', 'SIGKILL')],
    ['kill of an object', () => process.kill({ valueOf: () => 17 }, 'SIGKILL')],
    ['reallyExit', () => process.reallyExit(1)],
    ['_kill', () => process._kill(17, 9)],
    ['disconnect', () => process.disconnect()],
    ['a signal', () => process.emit('SIGTERM')],
    ['a message of the parent', () => process.emit('message', { act: 'disconnect' })],
  ])('end or drain no process: %s', (_what, end) => {
    expect(end).toThrow('it may not end the process')
    expect(made).toEqual([])
  })

  it('take no listeners of other code away', () => {
    expect(() => process.removeAllListeners('SIGTERM')).toThrow('remove the listeners of your own objects')
    expect(() => process.setUncaughtExceptionCaptureCallback(() => undefined)).toThrow('would miss signals')
    expect(made).toEqual([])
  })

  it('wait for no other process', () => {
    expect(() => childProcess.execFileSync('true')).toThrow('room code called execFileSync')
    expect(() => childProcess.spawnSync('true')).toThrow('use the asynchronous call, in a task')
    expect(() => childProcess.execSync('true')).toThrow('room code called execSync')
    expect(made).toEqual([])
  })

  it('hash for at most as long as the login of a database takes', () => {
    expect(() => crypto.pbkdf2Sync('password', 'salt', 30_000_000)).toThrow(
      '30000000 rounds would stop all rooms',
    )
    crypto.pbkdf2Sync('password', 'salt', 10)
    expect(made).toEqual([['pbkdf2Sync', 'password', 'salt', 10]])
  })

  it.each<[what: string, block: () => void, reason: string]>([
    ['a costly hash', () => crypto.scryptSync('a', 'b', 64, { N: 2 ** 16 }), 'N × r × p of 524288'],
    ['one with many parts', () => crypto.scryptSync('a', 'b', 64, { p: 100 }), 'N × r × p of 13107200'],
    ['a large prime', () => crypto.generatePrimeSync(2048), 'at most 512 bits'],
    ['a safe prime', () => crypto.generatePrimeSync(256, { safe: true }), 'need not be safe primes'],
    ['RSA keys', () => crypto.generateKeyPairSync('rsa', { modulusLength: 4096 }), 'rsa keys take seconds'],
    ['a wait', () => atomics.wait(new Int32Array(1), 0, 0), 'room code called Atomics.wait'],
  ])('block the node in no native call: %s', (_what, block, reason) => {
    expect(block).toThrow(reason)
    expect(made).toEqual([])
  })

  it('may use short native calls', () => {
    crypto.scryptSync('a', 'b', 64)
    crypto.scryptSync('a', 'b', 64, { cost: 2 ** 15 })
    crypto.generatePrimeSync(512)
    crypto.generateKeyPairSync('ec')
    expect(made.map(([name]) => name)).toEqual([
      'scryptSync',
      'scryptSync',
      'generatePrimeSync',
      'generateKeyPairSync',
    ])
  })

  it('are allowed in other code, for other processes, and for events that Node emits in room code', () => {
    process.kill(18, 'SIGTERM')
    process.kill(17, 0)
    process.emit('warning', 'slow')
    process.emit('unhandledRejection', 'lost')
    inRoomCode = false
    process.exit(0)
    process.emit('SIGTERM')
    childProcess.execSync('true')
    expect(made).toEqual([
      ['kill', 18, 'SIGTERM'],
      ['kill', 17, 0],
      ['emit', 'warning', 'slow'],
      ['emit', 'unhandledRejection', 'lost'],
      ['exit', 0],
      ['emit', 'SIGTERM'],
      ['execSync', 'true'],
    ])
  })

  it('are forbidden once, however many nodes of a process forbid them', () => {
    const { exit } = process
    forbidCalls(modules, () => inRoomCode)
    expect(process.exit).toBe(exit)
  })
})
