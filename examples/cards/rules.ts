/** Rules of Crazy Eights, for the room and the page. */

/** Time limit of a turn in milliseconds. */
export const TURN_MS = 20_000

export const SUITS = ['♠', '♥', '♦', '♣'] as const
export type Suit = (typeof SUITS)[number]

const RANKS = ['A', '2', '3', '4', '5', '6', '7', '8', '9', '10', 'J', 'Q', 'K'] as const
type Rank = (typeof RANKS)[number]

/** Such as `10♥`. */
export type Card = `${Rank}${Suit}`

export const suitOf = (card: Card): Suit => card.slice(-1) as Suit
export const rankOf = (card: Card): Rank => card.slice(0, -1) as Rank
/** Names of suits and ranks, for screen readers. */
export const SUIT_NAMES = { '♠': 'spades', '♥': 'hearts', '♦': 'diamonds', '♣': 'clubs' } as const
const RANK_NAMES: Readonly<Record<string, string>> = { A: 'ace', J: 'jack', Q: 'queen', K: 'king' }
export const nameOfCard = (card: Card): string =>
  `${RANK_NAMES[rankOf(card)] ?? rankOf(card)} of ${SUIT_NAMES[suitOf(card)]}`

/** An eight fits any card and sets the next suit. */
export const isEight = (card: Card): boolean => rankOf(card) === '8'

/** Returns true if `card` fits `top` while `suit` is required. */
export const fits = (card: Card, top: Card, suit: Suit): boolean =>
  isEight(card) || suitOf(card) === suit || rankOf(card) === rankOf(top)

/** Sorts a hand by suit, then by rank. */
export const inOrder = (hand: readonly Card[]): Card[] =>
  [...hand].sort(
    (a, b) =>
      SUITS.indexOf(suitOf(a)) - SUITS.indexOf(suitOf(b)) ||
      RANKS.indexOf(rankOf(a)) - RANKS.indexOf(rankOf(b)),
  )

export const newDeck = (): Card[] => SUITS.flatMap((suit) => RANKS.map((rank): Card => `${rank}${suit}`))

/** Shuffles the cards: every order is equally likely (R. Durstenfeld, "Algorithm 235: Random permutation", 1964). */
export function shuffled(cards: readonly Card[], random: () => number): Card[] {
  const deck = [...cards]
  for (let i = deck.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1))
    const card = deck[i]!
    deck[i] = deck[j]!
    deck[j] = card
  }
  return deck
}

/** Returns true if the current player can draw: a card is in the deck or below the top of the pile. Uses only the visible state. */
export const mayDraw = ({
  pile,
  players,
}: {
  readonly pile: readonly Card[]
  readonly players: { readonly [id: string]: { readonly cards: number } }
}): boolean =>
  pile.length > 1 || Object.values(players).reduce((held, { cards }) => held + cards, 1) < newDeck().length

/** Number of cards that each player gets, by the number of players. */
export const handSize = (players: number): number => (players === 2 ? 7 : 5)

/** Returns the most frequent suit of a hand. A bot chooses this suit after an eight. */
export const bestSuit = (hand: readonly Card[]): Suit => {
  const count = (suit: Suit): number => hand.filter((card) => !isEight(card) && suitOf(card) === suit).length
  return SUITS.reduce((best, suit) => (count(suit) > count(best) ? suit : best))
}
