import { describe, expect, it } from 'vitest'
import { behind, newestOf } from './seen.ts'

const at = (epoch: number, seq: number, room_id = 'load:a') => ({ room_id, epoch, seq })

describe('the newest of a room', () => {
  it('is the furthest that anybody has seen of the room as it is now, in each room', () => {
    const newest = newestOf([at(1, 5), at(1, 9), at(1, 7), at(4, 2, 'load:b'), at(3, 80, 'load:b')])
    expect(newest).toEqual({ 'load:a': at(1, 9), 'load:b': at(4, 2, 'load:b') })
  })

  it('leaves behind who has seen less, and nobody else', () => {
    const newest = newestOf([at(2, 9)])
    expect(behind(at(2, 9), newest)).toBe(0)
    expect(behind(at(2, 6), newest)).toBe(3)
    expect(behind(at(1, 9), newest), 'has missed nothing since the room moved').toBe(0)
    expect(behind(at(1, 8), newest), 'has not heard that the room moved').toBe(1)
    expect(behind(at(3, 1), newest), 'is in a room that has moved since').toBe(0)
    expect(behind(at(2, 1, 'load:c'), newest)).toBe(0)
  })
})
