import { expect, test } from 'vitest'
import { turn } from '../test/support/client/play.ts'
import { Events } from './listeners.ts'

const setUp = () => {
  const errors: unknown[] = []
  return { errors, events: new Events((error) => errors.push(error)) }
}

test('the first listener of a name gets the earlier events of that name, in order and before later ones', async () => {
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

test('a listener that is removed in the same turn gets no event, and the next listener of that turn gets all', async () => {
  const { events } = setUp()
  const heard: unknown[] = []
  events.emit({ name: 'hit', data: 1 })
  events.on('hit', () => heard.push('first'))()
  events.on('hit', (data) => heard.push(data))
  await turn()
  expect(heard).toEqual([1])
})

test('the latest 64 events without a listener are kept', async () => {
  const { events } = setUp()
  const heard: unknown[] = []
  for (let n = 1; n <= 100; n++) events.emit({ name: 'hit', data: n })
  events.on('hit', (data) => heard.push(data))
  await turn()
  expect([heard.length, heard[0], heard.at(-1)]).toEqual([64, 37, 100])
})

test('events of a name that has had a listener are not kept', async () => {
  const { events } = setUp()
  const heard: unknown[] = []
  events.on('hit', () => {})()
  await turn()
  events.emit({ name: 'hit', data: 1 })
  events.on('hit', (data) => heard.push(data))
  await turn()
  expect(heard).toEqual([])
})

test('a listener that throws on a kept event does not stop the other kept events', async () => {
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
