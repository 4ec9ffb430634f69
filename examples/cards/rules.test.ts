import { expect, test } from 'vitest'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { bestSuit, type Card, fits, inOrder, mayDraw, newDeck, type Suit, shuffled } from './rules.ts'

test.each<[Card, Card, Suit, boolean]>([
  ['4♠', 'K♠', '♠', true],
  ['K♥', 'K♠', '♠', true],
  ['4♥', 'K♠', '♠', false],
  ['8♥', 'K♠', '♠', true],
  ['4♥', '8♠', '♥', true],
  ['4♠', '8♠', '♥', false],
  ['10♦', '10♣', '♣', true],
])('%s on %s, with the required suit %s: %s', (card, top, suit, fit) => {
  expect(fits(card, top, suit)).toBe(fit)
})

test('a deck has each of 52 cards once, also after a shuffle, in a random order', () => {
  const seeded = new SeededRandom()
  const random = () => seeded.float()
  const decks = [shuffled(newDeck(), random), shuffled(newDeck(), random)]
  for (const deck of decks) expect(new Set(deck)).toEqual(new Set(newDeck()))
  expect(newDeck()).toHaveLength(52)
  expect(decks[0]).not.toEqual(decks[1])
  expect(inOrder(decks[0]!)).toEqual(newDeck())
})

test('a bot that plays an eight chooses the most frequent suit of its hand, eights excluded', () => {
  expect(bestSuit(['8♠', '8♥', '2♦', '3♦', '4♣'])).toBe('♦')
})

test('mayDraw returns false if all cards are in hands except the top of the pile', () => {
  const players = { a: { cards: 26 }, b: { cards: 25 } }
  expect(mayDraw({ pile: ['4♠'], players })).toBe(false)
  expect(mayDraw({ pile: ['4♠'], players: { ...players, b: { cards: 24 } } })).toBe(true)
  expect(mayDraw({ pile: ['4♠', 'K♠'], players: { ...players, b: { cards: 24 } } })).toBe(true)
})
