import { expect, it } from 'vitest'
import { EventWitness } from './event-witness.ts'

function watched(): { witness: EventWitness; lost: number[] } {
  const lost: number[] = []
  return { witness: new EventWitness((_, times) => lost.push(times)), lost }
}

it('says nothing of events that come one after the other, from whichever on', () => {
  const { witness, lost } = watched()
  witness.shown(6)
  for (const number of [7, 8, 9]) witness.came(number)
  witness.shown(9)
  expect(lost).toEqual([])
})

it('tells how many are missing, between two and at the end', () => {
  const { witness, lost } = watched()
  for (const number of [7, 10]) witness.came(number)
  witness.shown(11)
  witness.shown(11)
  expect(lost).toEqual([2, 1])
})

it('begins anew after a disturbance', () => {
  const { witness, lost } = watched()
  witness.came(7)
  witness.disturbed()
  witness.shown(9)
  witness.came(12)
  witness.came(13)
  expect(lost).toEqual([])
})
