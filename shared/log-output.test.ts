import { describe, expect, it } from 'vitest'
import { createLog, droppedLines } from './log.ts'

/** A stream whose reader reads when the test says so. */
class FakeStream {
  readonly lines: string[] = []
  readonly #waiting: { line: string; done: ((error?: Error | null) => void) | undefined }[] = []
  error: Error | undefined
  reads = true

  get writableLength(): number {
    return this.#waiting.reduce((sum, { line }) => sum + line.length, 0)
  }

  write(line: string, done?: (error?: Error | null) => void): void {
    this.#waiting.push({ line, done })
    if (this.reads) this.flush()
  }

  flush(count = Number.POSITIVE_INFINITY): void {
    for (const { line, done } of this.#waiting.splice(0, count)) {
      if (this.error === undefined) this.lines.push(line)
      done?.(this.error ?? null)
    }
  }
}

function newLog() {
  const stream = new FakeStream()
  const errors = new FakeStream()
  return { stream, errors, log: createLog({ logLevel: 'info', logFormat: 'json' }, {}, stream, errors) }
}

const messages = ({ lines }: FakeStream) => lines.map((line) => JSON.parse(line).msg)

describe('LogOutput', () => {
  it('drops and counts the lines that a full disk does not take, and writes one line to stderr', () => {
    const { stream, errors, log } = newLog()
    stream.error = new Error('ENOSPC: no space left on device, write')
    log.info('one')
    log.child({ room_id: 'arena:a' }).info('two')
    expect([droppedLines(log), stream.lines]).toEqual([2, []])
    expect(errors.lines).toEqual([
      expect.stringMatching(
        /^roomful \(process \d+\): the log cannot be written: ENOSPC.*; lines are dropped.*\n$/,
      ),
    ])
  })

  it('logs how many lines were dropped once lines can be written again', () => {
    const { stream, errors, log } = newLog()
    stream.error = new Error('ENOSPC')
    log.info('lost')
    log.info('lost')
    stream.error = undefined
    log.info('kept')
    expect(messages(stream)).toEqual(['kept', 'log lines were dropped'])
    expect(JSON.parse(stream.lines[1]!)).toMatchObject({ level: 'warn', dropped: 2 })
    stream.error = new Error('ENOSPC')
    log.info('lost')
    expect([droppedLines(log), errors.lines.length]).toEqual([3, 2])
  })

  it('starts a new line after a line that a full disk may have taken in part', () => {
    const { stream, log } = newLog()
    stream.error = new Error('ENOSPC')
    log.info('torn')
    stream.error = undefined
    log.info('kept')
    log.info('next')
    expect(stream.lines.map((line) => line.startsWith('\n'))).toEqual([true, false, false])
  })

  it('keeps at most 4 MiB for a reader that has stalled, and drops lines until the reader has read all of it', () => {
    const { stream, errors, log } = newLog()
    stream.reads = false
    const text = 'x'.repeat(100_000)
    for (let n = 0; n < 100; n++) log.info({ text }, 'line')
    expect(stream.writableLength).toBeGreaterThan(3 * 1024 * 1024)
    expect(stream.writableLength).toBeLessThanOrEqual(4 * 1024 * 1024)
    const dropped = droppedLines(log)
    expect(dropped).toBeGreaterThan(50)
    stream.flush(1)
    log.info('while the rest waits')
    expect([droppedLines(log), errors.lines.length]).toEqual([dropped + 1, 1])
    stream.reads = true
    stream.flush()
    log.info('kept')
    expect(messages(stream).slice(-2)).toEqual(['kept', 'log lines were dropped'])
    expect(stream.lines.length + droppedLines(log)).toBe(103)
  })

  it('writes nothing to stderr while stderr has not taken what it was given before', () => {
    const { stream, errors, log } = newLog()
    errors.reads = false
    errors.write('before')
    stream.error = new Error('EPIPE')
    log.info('lost')
    expect(errors.writableLength).toBe('before'.length)
  })
})
