import { describe, expect, it } from 'vitest'
import type { Turn } from '../../room/hooks.ts'
import { countedMs, StandstillMeter, sharedTurn, TurnReader, TurnWriter } from './turns.ts'

const DUEL = { name: 'prj_a/duel:kämpfe', epoch: 1_795_334_400_123 }
const TICK_MS = 25

const turn = (change: Partial<Turn> = {}): Turn => ({
  room: DUEL,
  hook: 'onMessage',
  subject: 'mem_1',
  ref: 2 ** 40 + 1,
  type: 'strike',
  principal: 'ada',
  ...change,
})

/** Writer and reader of the memory that two threads share. */
function shared() {
  const buffer = sharedTurn()
  return { writer: new TurnWriter(buffer), reader: new TurnReader(buffer) }
}

describe('the turn that two threads share', () => {
  it('is read as it was written, until it ends', () => {
    const { writer, reader } = shared()
    expect(reader.running).toBeUndefined()
    writer.begin(turn(), true)
    expect(reader.running).toBeDefined()
    expect(reader.turn).toEqual({ ...turn(), guarded: true })
    writer.end()
    expect(reader.running).toBeUndefined()
    const tick = turn({
      room: { ...DUEL, epoch: 7 },
      hook: 'onTick',
      subject: '',
      ref: 0,
      type: '',
      principal: '',
    })
    writer.begin(tick, false)
    expect(reader.turn).toEqual({ ...tick, guarded: false })
  })

  it('is the outer one of two nested turns', () => {
    const { writer, reader } = shared()
    writer.begin(turn(), false)
    const { running } = reader
    writer.begin(turn({ hook: 'onLeave', subject: 'mem_2' }), false)
    expect([reader.running, reader.turn.subject]).toEqual([running, 'mem_1'])
    writer.end()
    expect([reader.running, reader.turn.subject]).toEqual([running, 'mem_1'])
    writer.end()
    expect(reader.running).toBeUndefined()
  })

  it('has its texts cut to their maximum length, and overwrites nothing next to them', () => {
    const { writer, reader } = shared()
    const room = { name: 'x'.repeat(5000), epoch: 1 }
    writer.begin(turn({ room, subject: 'ü'.repeat(500), ref: 4, type: 'y'.repeat(500) }), false)
    const { room: read, hook, ref } = reader.turn
    expect([read.epoch, hook, ref]).toEqual([1, 'onMessage', 4])
  })

  it('does not count while a debugger may have stopped it', () => {
    const { writer, reader } = shared()
    writer.debugged = true
    writer.begin(turn(), false)
    expect([reader.running, reader.beats]).toEqual([undefined, undefined])
    writer.debugged = false
    expect(reader.running).toBeDefined()
  })

  it('names the asynchronous call that started last', () => {
    const { writer, reader } = shared()
    expect(reader.open).toBeUndefined()
    const admit = turn({ hook: 'admit', type: '' })
    writer.open(admit)
    expect(reader.open).toEqual(admit)
    writer.open(undefined)
    expect(reader.open).toBeUndefined()
  })
})

describe('StandstillMeter', () => {
  // In a stopped process (SIGSTOP), or on a machine that sleeps, time passes, but the watching thread makes no ticks either.
  it('counts ticks with the same number, and starts again at another number', () => {
    const meter = new StandstillMeter()
    const numbers = [1, 1, 1, 1, 2, 2, undefined, 2, 2, 2]
    const ticks = numbers.map((number) => meter.tick(number, TICK_MS))
    expect(ticks.map(({ reaches }) => reaches(50))).toEqual([0, 0, 1, 0, 0, 0, 0, 0, 0, 1].map(Boolean))
    expect(ticks.map(({ exceeds }) => exceeds(50))).toEqual([0, 0, 1, 1, 0, 0, 0, 0, 0, 1].map(Boolean))
  })
})

describe('a tick', () => {
  it('counts as the CPU time of the process, but at least as a share of its length', () => {
    expect([0, 5, 10, 25, 60].map((cpuMs) => countedMs(TICK_MS, cpuMs, 0.3))).toEqual([7.5, 7.5, 10, 25, 25])
  })
})
