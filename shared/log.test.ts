import { stripVTControlCharacters } from 'node:util'
import { describe, expect, it } from 'vitest'
import { createLog, droppedLines, setLogLevel } from './log.ts'

function lines(options: { isTTY?: boolean } = {}) {
  const written: string[] = []
  return { written, output: { ...options, write: (line: string) => void written.push(line) } }
}

const circle: Error = new Error('oops')
delete circle.stack
circle.cause = circle

describe('the log', () => {
  it('has JSON lines with time, level, base fields and message', () => {
    const { written, output } = lines()
    createLog({ logLevel: 'info' }, { node_id: 'node_1' }, output).info({ room_id: 'arena:a' }, 'hello')
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

  it('omits lines below its level', () => {
    const { written, output } = lines()
    createLog({ logLevel: 'warn' }, {}, output).info('quiet')
    expect(written).toEqual([])
  })

  it('changes its level immediately, also in existing children', () => {
    const { written, output } = lines()
    const log = createLog({ logLevel: 'warn' }, {}, output)
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

  it('never contains a token, secret, payload or room state', () => {
    const { written, output } = lines()
    createLog({ logLevel: 'info' }, {}, output).info(
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

  it('has name, message, stack, code and cause of an error, and nothing else', () => {
    class NoRoom extends Error {}
    const attached = {
      config: { headers: { authorization: 'hunter2' } },
      request: 'hunter2',
      hint: 'hunter2',
    }
    const response = Object.assign(new TypeError('HTTP 401'), attached, { code: 'ERR_BAD_REQUEST' })
    const error = Object.assign(new NoRoom('failed', { cause: response }), attached, { code: 7 })
    const { written, output } = lines()
    const log = createLog({ logLevel: 'info' }, {}, output)
    log.error({ err: error }, 'one')
    log.error({ failure: error }, 'two')
    log.error(error)
    log.child({ room_id: 'arena:a' }).error({ error }, 'four')
    const expected = {
      name: 'NoRoom',
      message: 'failed',
      stack: expect.stringContaining('log.test'),
      code: 7,
      cause: {
        name: 'TypeError',
        message: 'HTTP 401',
        stack: expect.stringContaining('log.test'),
        code: 'ERR_BAD_REQUEST',
      },
    }
    const parsed = written.map((line) => JSON.parse(line))
    expect([parsed[0].err, parsed[1].failure, parsed[2].err, parsed[3].error]).toEqual(
      Array(4).fill(expected),
    )
    expect(written.join()).not.toContain('hunter2')
  })

  it('shortens long errors and long chains of causes', () => {
    const long = Object.assign(new Error('x'.repeat(100_000)), { code: 'c'.repeat(1000) })
    let error = long
    for (let n = 0; n < 20; n++) error = new Error('x'.repeat(100_000), { cause: error }) as typeof long
    const { written, output } = lines()
    createLog({ logLevel: 'info' }, {}, output).error({ err: error }, 'failed')
    expect(written[0]!.length).toBeLessThan(50_000)
    expect(JSON.parse(written[0]!).err.cause.cause.cause.cause).toBeUndefined()
  })

  it.each([
    ['a text', 'oops', { message: 'oops' }],
    ['nothing', null, { message: 'null' }],
    ['an object', { message: 'oops', token: 'hunter2' }, { name: 'Object', message: 'oops' }],
    ['an object without a prototype', Object.create(null), {}],
    [
      'a circle',
      circle,
      [3, 2, 1, 0].reduceRight(
        (cause: object | undefined) => ({ name: 'Error', message: 'oops', ...(cause && { cause }) }),
        undefined,
      ),
    ],
    [
      'an error that cannot be read',
      new Proxy(new Error('oops'), {
        get: () => {
          throw new Error('no')
        },
      }),
      {},
    ],
    ['a code that is an object', { code: { authorization: 'hunter2' } }, { name: 'Object' }],
  ])('logs a thrown value that is no error: %s', (_, thrown, expected) => {
    const { written, output } = lines()
    createLog({ logLevel: 'info' }, {}, output).error({ err: thrown }, 'failed')
    expect(JSON.parse(written[0]!).err).toEqual(expected)
  })

  it('contains the stack of an error', () => {
    const { written, output } = lines()
    createLog({ logLevel: 'info' }, {}, output).error({ err: new Error('broken') }, 'failed')
    expect(JSON.parse(written[0]!).err).toMatchObject({
      message: 'broken',
      stack: expect.stringContaining('log.test'),
    })
  })

  it('is formatted for people on a terminal, also if that is not a stream, as in the thread of the watchdog', () => {
    const { written, output } = lines({ isTTY: true })
    const log = createLog({ logLevel: 'info' }, { node_id: 'node_1' }, output)
    log.info({ room_id: 'arena:a' }, 'hello')
    expect(stripVTControlCharacters(written.join(''))).toMatch(
      /^\[[\d:.]+\] INFO.*: hello .*"room_id":"arena:a"/,
    )
  })
})

/** A stream that the test controls: it reads only when the test says so. */
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
  return { stream, errors, log: createLog({ logLevel: 'info' }, {}, stream, errors) }
}

const messages = ({ lines }: FakeStream) => lines.map((line) => JSON.parse(line).msg)

describe('LogOutput', () => {
  it('drops and counts lines that a full disk rejects, and writes one line to stderr', () => {
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

  it('logs the number of dropped lines when lines can be written again', () => {
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

  it('buffers at most 4 MiB for a stalled reader, and drops lines until the reader has read all of it', () => {
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

  it('writes nothing to stderr while stderr has not taken the previous line', () => {
    const { stream, errors, log } = newLog()
    errors.reads = false
    errors.write('before')
    stream.error = new Error('EPIPE')
    log.info('lost')
    expect(errors.writableLength).toBe('before'.length)
  })
})
