import { describe, expect, it } from 'vitest'
import { decodeNote, encodeNote, StandstillDetector, sharedTurn, TurnReader, TurnWriter } from './turns.ts'

const DUEL = { name: 'prj_a/duel:kämpfe', epoch: 1_795_334_400_123 }
const LIMIT_MS = 800
const TICK_MS = 25

/** Both sides of the memory that two threads share. */
function shared() {
  const buffer = sharedTurn()
  const writer = new TurnWriter(buffer)
  const reader = new TurnReader(buffer)
  const detector = new StandstillDetector(LIMIT_MS, TICK_MS)
  const turn = () => (detector.tick(reader.running) ? reader.turn : undefined)
  /** The turn that is found within so many ticks. */
  const tick = (times: number) => {
    for (let n = 1; n < times; n++) expect(turn()).toBeUndefined()
    return turn()
  }
  return { writer, reader, tick }
}

describe('the turn that two threads share', () => {
  it('is read as it was written, and is there until it ends', () => {
    const { writer, reader } = shared()
    expect(reader.running).toBeUndefined()
    writer.begin(DUEL, 'onMessage', 'mem_1', 2 ** 40 + 1, 'strike')
    expect(reader.running).toBeDefined()
    expect(reader.turn).toEqual({
      room: DUEL,
      hook: 'onMessage',
      subject: 'mem_1',
      ref: 2 ** 40 + 1,
      type: 'strike',
    })
    writer.end()
    expect(reader.running).toBeUndefined()
    writer.begin({ ...DUEL, epoch: 7 }, 'onTick', '', 0, '')
    expect(reader.turn).toEqual({
      room: { ...DUEL, epoch: 7 },
      hook: 'onTick',
      subject: '',
      ref: 0,
      type: '',
    })
  })

  it('is the outer one of two', () => {
    const { writer, reader } = shared()
    writer.begin(DUEL, 'onMessage', 'mem_1', 3, 'kick')
    const { running } = reader
    writer.begin(DUEL, 'onLeave', 'mem_2', 0, '')
    expect([reader.running, reader.turn.subject]).toEqual([running, 'mem_1'])
    writer.end()
    expect([reader.running, reader.turn.subject]).toEqual([running, 'mem_1'])
    writer.end()
    expect(reader.running).toBeUndefined()
  })

  it('cuts what does not fit, and spoils nothing beside it', () => {
    const { writer, reader } = shared()
    writer.begin({ name: 'x'.repeat(5000), epoch: 1 }, 'admit', 'ü'.repeat(500), 4, 'y'.repeat(500))
    const { room, hook, subject, ref, type } = reader.turn
    expect([room.epoch, hook, ref]).toEqual([1, 'admit', 4])
    expect([room.name, subject, type].map((text) => /^(x+|ü+|y+)$/.test(text))).toEqual([true, true, true])
  })
})

describe('a turn', () => {
  it('is stuck once it has lasted for the limit', () => {
    const { writer, tick } = shared()
    writer.begin(DUEL, 'onMessage', 'mem_1', 1, 'strike')
    expect(tick(33)).toMatchObject({ room: DUEL, ref: 1 })
  })

  // A process that is stopped (SIGSTOP), a machine that sleeps: time passes, and the thread that watches makes no ticks either.
  it('is not stuck because time has passed in which no one ticked, nor because many turns have', () => {
    const { writer, tick } = shared()
    for (let n = 0; n < 5; n++) {
      writer.begin(DUEL, 'onMessage', 'mem_1', n, 'strike')
      expect(tick(32)).toBeUndefined()
      writer.end()
    }
    expect(tick(100)).toBeUndefined()
  })

  it('may last as long as it likes under a debugger', () => {
    const { writer, tick } = shared()
    writer.debugged = true
    writer.begin(DUEL, 'onMessage', 'mem_1', 1, 'strike')
    expect(tick(1000)).toBeUndefined()
    writer.debugged = false
    expect(tick(33)).toBeDefined()
  })
})

describe('an event loop', () => {
  it('stands still when it has not told for the limit that it goes on, and is told of once', () => {
    const { writer, reader } = shared()
    const detector = new StandstillDetector(LIMIT_MS, TICK_MS)
    const tick = (times: number) =>
      Array.from({ length: times }, () => detector.tick(reader.beats)).filter(Boolean)
    for (let n = 0; n < 5; n++) {
      writer.beat()
      expect(tick(32)).toEqual([])
    }
    expect(tick(100)).toEqual([true])
    writer.debugged = true
    expect(tick(100)).toEqual([])
  })

  it('is told of with the types of the rooms whose code awaits something', () => {
    const { writer, reader } = shared()
    writer.awaits('duel', 1)
    writer.awaits('chess', 1)
    writer.awaits('duel', 1)
    expect(reader.awaiting).toBe('duel, chess')
    writer.awaits('duel', -1)
    writer.awaits('chess', -1)
    expect(reader.awaiting).toBe('duel')
    writer.awaits('duel', -1)
    expect(reader.awaiting).toBe('')
  })
})

describe('a note', () => {
  it('tells the next owner what it was', () => {
    const cause = { hook: 'onJoin', subject: 'ses_1', ref: 4, type: '' } as const
    expect(decodeNote(encodeNote(cause))).toEqual(cause)
  })

  it.each(['', 'null', '{}', '{"hook":"on_fire","subject":"","ref":0,"type":""}', '\xff'])(
    'that cannot be read (%j) is none',
    (text) => {
      expect(decodeNote(Buffer.from(text, 'latin1'))).toBeUndefined()
    },
  )
})
