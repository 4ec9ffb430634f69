import { EventEmitter } from 'node:events'
import { describe, expect, it } from 'vitest'
import { createLog } from '../../shared/log.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { advertisedUrl, mergeExpositions, WorkerFailed, Workers } from './workers.ts'

/** A worker process that only records its messages and signals. */
class FakeProcess extends EventEmitter {
  readonly signals: unknown[] = []
  readonly number: number

  constructor(number: number) {
    super()
    this.number = number
  }

  readonly told: unknown[] = []

  send(message: unknown): boolean {
    this.told.push(message)
    return true
  }

  kill(signal?: unknown): boolean {
    this.signals.push(signal)
    return true
  }

  serves(): void {
    this.emit('message', { t: 'ready', addresses: { api: 'http://127.0.0.1:3000' } })
  }

  ends(code: number | null, signal: string | null = null): void {
    this.emit('exit', code, signal)
  }
}

const nextTurn = () => new Promise((resolve) => setImmediate(resolve))

function setup(count: number) {
  const clock = new FakeClock()
  const processes: FakeProcess[] = []
  const log = createLog({ logLevel: 'silent' })
  const workers = new Workers({
    count,
    fork: (number) => {
      const one = new FakeProcess(number)
      processes.push(one)
      return one
    },
    clock,
    log,
  })
  /** The latest started process. */
  const last = () => processes.at(-1)!
  const numbers = () => processes.map(({ number }) => number)
  const serving = () => workers.ready.map(({ number }) => number)
  const started = async () => {
    const all = workers.start()
    for (let i = 0; i < count; i++) {
      processes[i]!.serves()
      await nextTurn()
    }
    await all
  }
  return { clock, log, workers, processes, last, numbers, serving, started }
}

describe('the workers of a process', () => {
  it('all get the log level that one of them has received', async () => {
    const { processes, started, log } = setup(2)
    await started()
    const message = { t: 'log_level', level: 'fatal' }
    processes[1]!.emit('message', message)
    expect(processes.map(({ told }) => told)).toEqual([[message], [message]])
    expect(log.level).toBe('fatal')
  })

  it('start one first, and the others when it serves', async () => {
    const { workers, numbers, processes } = setup(3)
    const all = workers.start()
    expect(numbers()).toEqual([1])
    processes[0]!.serves()
    await nextTurn()
    expect(numbers()).toEqual([1, 2, 3])
    processes[1]!.serves()
    processes[2]!.serves()
    await all
  })

  it('do not start if one cannot, and the error has its exit code', async () => {
    const { workers, processes } = setup(2)
    const all = workers.start()
    processes[0]!.serves()
    await nextTurn()
    processes[1]!.ends(2)
    const refused = expect(all).rejects.toMatchObject({ name: 'WorkerFailed', exitCode: 2 })
    await nextTurn()
    expect(processes[0]!.signals).toEqual(['SIGTERM'])
    processes[0]!.ends(0)
    await refused
  })

  it('are started again after they end, with growing pauses while they cannot serve', async () => {
    const { clock, processes, last, numbers, serving, started } = setup(2)
    await started()
    clock.advance(60_000)
    processes[1]!.ends(null, 'SIGKILL')
    await nextTurn()
    expect(serving()).toEqual([1])
    clock.advance(0)
    expect(numbers()).toEqual([1, 2, 2])
    for (const pause of [500, 1000, 2000]) {
      last().ends(1)
      await nextTurn()
      clock.advance(pause - 1)
      const before = numbers().length
      clock.advance(1)
      expect(numbers().length).toBe(before + 1)
    }
    last().serves()
    await nextTurn()
    expect(serving()).toEqual([1, 2])
  })

  it('have failed when none serves and a restart does not help', async () => {
    const { clock, workers, processes, last, started } = setup(1)
    await started()
    clock.advance(60_000)
    processes[0]!.ends(3)
    await nextTurn()
    clock.advance(0)
    last().ends(2)
    await expect(workers.ended).rejects.toEqual(new WorkerFailed(1, { code: 2, signal: null }))
  })

  it('have ended when each was drained by a request', async () => {
    const { workers, processes, started } = setup(2)
    await started()
    processes[0]!.ends(0)
    processes[1]!.ends(0)
    await workers.ended
    expect(processes).toHaveLength(2)
  })

  it('are replaced one by one, each after its successor serves', async () => {
    const { workers, processes, last, numbers, serving, started } = setup(2)
    await started()
    workers.replace()
    await nextTurn()
    expect(numbers()).toEqual([1, 2, 3])
    expect(processes[0]!.signals).toEqual([])
    last().serves()
    await nextTurn()
    expect(processes.map(({ signals }) => signals)).toEqual([['SIGTERM'], [], []])
    expect(serving()).toEqual([2, 3])
    processes[0]!.ends(0)
    await nextTurn()
    expect(numbers()).toEqual([1, 2, 3, 1])
    last().serves()
    await nextTurn()
    processes[1]!.ends(0)
    await nextTurn()
    expect(serving()).toEqual([1, 3])
  })

  it('are kept if a successor cannot serve', async () => {
    const { workers, processes, last, serving, started } = setup(2)
    await started()
    workers.replace()
    await nextTurn()
    last().ends(1)
    await nextTurn()
    expect(serving()).toEqual([1, 2])
    expect(processes).toHaveLength(3)
    expect(processes.flatMap(({ signals }) => signals)).toEqual([])
  })
})

it('have their metrics in one text, with the series of a metric together', () => {
  const text = (worker: number) =>
    `# HELP a_total Many.\n# TYPE a_total counter\na_total{worker="${worker}"} 1\n\n# HELP b Some.\n# TYPE b gauge\nb{worker="${worker}"} 2\n`
  expect(mergeExpositions([text(1), '', text(2)])).toBe(
    '# HELP a_total Many.\n# TYPE a_total counter\na_total{worker="1"} 1\na_total{worker="2"} 1\n' +
      '# HELP b Some.\n# TYPE b gauge\nb{worker="1"} 2\nb{worker="2"} 2\n',
  )
})

it.each([
  ['ws://10.0.0.5:4000', 'ws://10.0.0.5:4002'],
  ['wss://node-3.example.com', 'wss://node-3.example.com:445'],
  ['wss://play.example.com/node-3', 'wss://play.example.com/node-3-2'],
  ['wss://play.example.com/node-3/', 'wss://play.example.com/node-3-2'],
])('worker 2 of %s is reached at %s', (ofAll, own) => {
  expect(advertisedUrl(ofAll, 2)).toBe(own)
})
