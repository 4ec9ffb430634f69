import { expect, it } from 'vitest'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { recordingLog } from '../../test/support/redis-store.ts'
import { ExportLog } from './export-log.ts'

function exportLog() {
  const clock = new FakeClock()
  const { log, logged } = recordingLog()
  const said = () =>
    logged()
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as { msg: string; lost: number; why?: string })
      .map(({ msg, lost, why }) => [msg.includes('again') ? 'again' : 'lost', lost, why])
  return { clock, exports: new ExportLog(clock, log), said }
}

it('says that spans are lost once a minute, for as long as they are', () => {
  const { clock, exports, said } = exportLog()
  for (let second = 0; second < 180; second++) {
    exports.lost(10, 'nobody is there')
    clock.advance(1000)
  }
  expect(said()).toEqual([
    ['lost', 10, 'nobody is there'],
    ['lost', 610, 'nobody is there'],
    ['lost', 1210, 'nobody is there'],
  ])
})

it('says that they are taken again, and how many were lost', () => {
  const { exports, said } = exportLog()
  exports.taken()
  exports.lost(3, 'gone')
  exports.lost(4, 'gone')
  exports.taken()
  exports.taken()
  expect(said()).toEqual([
    ['lost', 3, 'gone'],
    ['again', 7, undefined],
  ])
})

it('does not follow a collector that takes every other batch', () => {
  const { clock, exports, said } = exportLog()
  for (let second = 0; second < 61; second++) {
    if (second % 2 === 0) exports.lost(1, 'busy')
    else exports.taken()
    clock.advance(1000)
  }
  expect(said()).toEqual([
    ['lost', 1, 'busy'],
    ['again', 1, undefined],
    ['lost', 30, 'busy'],
  ])
})
