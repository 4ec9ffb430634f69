import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { testRooms } from 'roomful/test'
import { expect, onTestFinished, test } from 'vitest'
import { inFile, notes } from './room.ts'
import { States } from './states.ts'

/** A file that is removed after the test. `opened`: opens it, as each process does. */
async function file() {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-notes-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const opened = async () => {
    const states = new States(join(folder, 'notes.db'))
    await states.load('')
    onTestFinished(() => states.close())
    return states
  }
  return opened
}

test('a board is the same after everything except its database has ended', async () => {
  const opened = await file()
  const before = await testRooms([notes(inFile(await opened()))])
  const [ada] = await before.join('notes', 1)
  await ada.send('pin', { text: 'milk' })
  await ada.send('pin', { text: 'bread' })
  await ada.send('take', { id: '1' })
  await before.advance(3000)
  await before.close()

  const after = await testRooms([notes(inFile(await opened()))])
  const [bob] = await after.join('notes', 1)
  expect(bob.state).toEqual({ next: 3, notes: { 2: 'bread' } })
})

test('a late save of an earlier owner is refused, and so is an older one of the same owner', async () => {
  const states = await (await file())()
  const key = 'lobby'
  expect(await states.save('new', { key, epoch: 2, seq: 5 })).toBe(true)
  expect(await states.save('late', { key, epoch: 1, seq: 9 })).toBe(false)
  expect(await states.save('older', { key, epoch: 2, seq: 4 })).toBe(false)
  expect(await states.load(key)).toBe('new')
  expect(await states.save('again', { key, epoch: 2, seq: 5 })).toBe(true)
  expect(await states.save('newest', { key, epoch: 3, seq: 1 })).toBe(true)
  expect(await states.load(key)).toBe('newest')
})

test('the next owner saves the changes of a killed owner', async () => {
  const opened = await file()
  const states = await opened()
  const t = await testRooms([notes(inFile(states))])
  const [ada, bob] = await t.join('notes', 2)
  await ada.send('pin', { text: 'milk' })
  await t.killOwner()
  await bob.send('pin', { text: 'bread' })
  await t.advance(3000)
  const [key] = ada.id.split(':').slice(1)
  expect(await states.load(key!)).toEqual({ next: 3, notes: { 1: 'milk', 2: 'bread' } })
})
