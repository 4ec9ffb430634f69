/** The rules of Crazy Eights, as far as they need no table: for the room that holds players to them, and the page that shows them. */

/** How long a player may think. */
export const TURN_MS = 20_000

export const SUITS = ['♠', '♥', '♦', '♣'] as const
export type Suit = (typeof SUITS)[number]

const RANKS = ['A', '2', '3', '4', '5', '6', '7', '8', '9', '10', 'J', 'Q', 'K'] as const
type Rank = (typeof RANKS)[number]

/** Such as `10♥`. */
export type Card = `${Rank}${Suit}`

export const suitOf = (card: Card): Suit => card.slice(-1) as Suit
export const rankOf = (card: Card): Rank => card.slice(0, -1) as Rank
/** The names of suits and ranks, for those who hear the page. */
export const SUIT_NAMES = { '♠': 'spades', '♥': 'hearts', '♦': 'diamonds', '♣': 'clubs' } as const
const RANK_NAMES: Readonly<Record<string, string>> = { A: 'ace', J: 'jack', Q: 'queen', K: 'king' }
export const nameOfCard = (card: Card): string =>
  `${RANK_NAMES[rankOf(card)] ?? rankOf(card)} of ${SUIT_NAMES[suitOf(card)]}`

/** An eight goes on anything, and names the suit that is to follow. */
export const isEight = (card: Card): boolean => rankOf(card) === '8'

/** Whether a card goes on `top` when `suit` is asked for. */
export const fits = (card: Card, top: Card, suit: Suit): boolean =>
  isEight(card) || suitOf(card) === suit || rankOf(card) === rankOf(top)

/** In the order that a hand is held in: by suit, then by rank. */
export const inOrder = (hand: readonly Card[]): Card[] =>
  [...hand].sort(
    (a, b) =>
      SUITS.indexOf(suitOf(a)) - SUITS.indexOf(suitOf(b)) ||
      RANKS.indexOf(rankOf(a)) - RANKS.indexOf(rankOf(b)),
  )

export const newDeck = (): Card[] => SUITS.flatMap((suit) => RANKS.map((rank): Card => `${rank}${suit}`))

/** The cards in another order, each as likely as the other (R. Durstenfeld, "Algorithm 235: Random permutation", 1964). */
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

/** Whether a card is left to draw: in the deck, which no one sees, or under the top of the pile. Says so from what everyone sees. */
export const mayDraw = ({
  pile,
  players,
}: {
  readonly pile: readonly Card[]
  readonly players: { readonly [id: string]: { readonly cards: number } }
}): boolean =>
  pile.length > 1 || Object.values(players).reduce((held, { cards }) => held + cards, 1) < newDeck().length

/** How many cards each of so many players gets. */
export const handSize = (players: number): number => (players === 2 ? 7 : 5)

/** The suit that a hand has most of: what one who plays an eight from it should ask for. */
export const bestSuit = (hand: readonly Card[]): Suit => {
  const count = (suit: Suit): number => hand.filter((card) => !isEight(card) && suitOf(card) === suit).length
  return SUITS.reduce((best, suit) => (count(suit) > count(best) ? suit : best))
}
