import { expect, test } from 'vitest'
import { turn } from '../test/support/client/play.ts'
import { Events } from './listeners.ts'

const setUp = () => {
  const errors: unknown[] = []
  return { errors, events: new Events((error) => errors.push(error)) }
}

test('events that came before the first listener of their name are given to it, in order and before those that follow', async () => {
  const { events } = setUp()
  const heard: unknown[] = []
  events.emit({ name: 'hit', data: 1 })
  events.emit({ name: 'miss', data: 'other' })
  events.emit({ name: 'hit', data: 2 })
  events.on('hit', (data) => heard.push(data))
  expect(heard).toEqual([])
  events.emit({ name: 'hit', data: 3 })
  await turn()
  events.emit({ name: 'hit', data: 4 })
  expect(heard).toEqual([1, 2, 3, 4])
  events.on('miss', (data) => heard.push(data))
  await turn()
  expect(heard.at(-1)).toBe('other')
})

test('a listener that was taken back in the same turn hears nothing, and the next one of that turn everything', async () => {
  const { events } = setUp()
  const heard: unknown[] = []
  events.emit({ name: 'hit', data: 1 })
  events.on('hit', () => heard.push('first'))()
  events.on('hit', (data) => heard.push(data))
  await turn()
  expect(heard).toEqual([1])
})

test('of events that no one listens to the latest 64 are kept', async () => {
  const { events } = setUp()
  const heard: unknown[] = []
  for (let n = 1; n <= 100; n++) events.emit({ name: 'hit', data: n })
  events.on('hit', (data) => heard.push(data))
  await turn()
  expect([heard.length, heard[0], heard.at(-1)]).toEqual([64, 37, 100])
})

test('once there was a listener nothing is kept', async () => {
  const { events } = setUp()
  const heard: unknown[] = []
  events.on('hit', () => {})()
  await turn()
  events.emit({ name: 'hit', data: 1 })
  events.on('hit', (data) => heard.push(data))
  await turn()
  expect(heard).toEqual([])
})

test('a listener that throws on an event that waited does not keep the others from theirs', async () => {
  const { events, errors } = setUp()
  const heard: unknown[] = []
  events.emit({ name: 'hit', data: 1 })
  events.emit({ name: 'hit', data: 2 })
  events.on('hit', (data) => {
    heard.push(data)
    throw new Error('mine')
  })
  await turn()
  expect(heard).toEqual([1, 2])
  expect(errors).toHaveLength(2)
})
