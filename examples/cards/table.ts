import {
  bestSuit,
  type Card,
  fits,
  handSize,
  isEight,
  newDeck,
  type Suit,
  shuffled,
  suitOf,
} from './rules.ts'

/** Visible data of a player. */
interface Player {
  /** Number of cards in the hand. */
  cards: number
  /** True while a bot plays for a player who has left. */
  bot: boolean
  wins: number
  /** The player's id. A player who returns gets the cards back from the bot by this id. */
  sub: string | null
}

export interface Table {
  phase: 'waiting' | 'playing' | 'over'
  /** Member ids in the order of play. Other players play from the next game on. */
  order: string[]
  players: Record<string, Player>
  /** Played cards. The last one is on top. */
  pile: Card[]
  /** Suit that the next card must have: the suit of the top card, or the suit that was chosen with an eight. */
  suit: Suit
  /** Whose turn it is; `endsAt` in the server's time. */
  turn: { of: string; number: number; endsAt: number; drew: boolean }
  winner: string | null
  /** Number of consecutive turns in which no player could play or draw. */
  stuck: number
  /** Hand of each player, hidden from the others. */
  hands: Record<string, Card[]>
  /** Hidden from all. */
  deck: Card[]
}

type Random = () => number

const SEATS = 4

export const newTable = (): Table => ({
  phase: 'waiting',
  order: [],
  players: {},
  pile: [],
  suit: '♠',
  turn: { of: '', number: 0, endsAt: 0, drew: false },
  winner: null,
  stuck: 0,
  hands: {},
  deck: [],
})

/**
 * Gives a new player a seat at the table. If a bot plays for this player, the player replaces the bot. If no game is running, the player
 * gets a free seat. Otherwise the player waits for the next game.
 */
export function arrive(
  table: Table,
  { id, sub }: { readonly id: string; readonly sub: string | null },
): void {
  const { order, players, hands } = table
  const own = order.find((other) => players[other]?.bot && sub !== null && players[other].sub === sub)
  const seat = own === undefined ? undefined : players[own]
  if (own !== undefined && seat) {
    order[order.indexOf(own)] = id
    players[id] = { ...seat, bot: false }
    hands[id] = [...(hands[own] ?? [])]
    delete players[own]
    delete hands[own]
    if (table.turn.of === own) beginTurn(table, id)
  } else if (table.phase !== 'playing' && order.length < SEATS && !players[id]) {
    order.push(id)
    players[id] = { cards: 0, bot: false, wins: 0, sub }
  }
}

/** Called when a player leaves: a bot takes over the player's cards. If only bots are left, the game ends. */
export function depart(table: Table, id: string): void {
  const player = table.players[id]
  if (!player) return
  if (table.phase !== 'playing') clear(table, id)
  else {
    player.bot = true
    if (table.order.every((other) => table.players[other]?.bot)) table.phase = 'waiting'
    else if (table.turn.of === id) beginTurn(table, id)
  }
}

/** Removes all bots. */
export function sendBotsAway(table: Table): void {
  for (const id of [...table.order]) if (table.players[id]?.bot) clear(table, id)
}

function clear(table: Table, id: string): void {
  table.order = table.order.filter((other) => other !== id)
  delete table.players[id]
  delete table.hands[id]
}

export function deal(table: Table, random: Random): void {
  const { order } = table
  const deck = shuffled(newDeck(), random)
  for (const id of order) {
    table.hands[id] = deck.splice(0, handSize(order.length))
    table.players[id]!.cards = handSize(order.length)
  }
  // The first card of the pile must not be an eight.
  const [top] = deck.splice(
    deck.findIndex((card) => !isEight(card)),
    1,
  )
  table.pile = [top!]
  table.suit = suitOf(top!)
  table.deck = deck
  table.phase = 'playing'
  table.winner = null
  table.stuck = 0
  beginTurn(table, order[Math.floor(random() * order.length)]!)
}

export const top = ({ pile }: Pick<Table, 'pile'>): Card => pile.at(-1)!

export const canDraw = ({ deck, pile }: Table): boolean => deck.length > 0 || pile.length > 1

/** The current player draws a card. If the deck is empty, all cards of the pile except the top card become the deck. */
export function draw(table: Table, random: Random): Card | undefined {
  if (!canDraw(table)) return undefined
  if (table.deck.length === 0) table.deck = shuffled(table.pile.splice(0, table.pile.length - 1), random)
  const card = table.deck.pop()!
  const { of } = table.turn
  table.hands[of]!.push(card)
  table.players[of]!.cards += 1
  table.turn.drew = true
  table.stuck = 0
  return card
}

/** The current player plays a card, which must fit. With an eight, `suit` sets the next suit. */
export function put(table: Table, card: Card, suit: Suit): void {
  const { of } = table.turn
  table.hands[of] = table.hands[of]!.filter((held) => held !== card)
  table.players[of]!.cards -= 1
  table.pile.push(card)
  table.suit = isEight(card) ? suit : suitOf(card)
  table.stuck = 0
  if (table.players[of]!.cards === 0) finish(table, of)
  else nextTurn(table)
}

/** The current player passes. If no player can play or draw, the player with the fewest cards wins. */
export function pass(table: Table): void {
  if (!table.turn.drew) table.stuck += 1
  const count = (id: string): number => table.players[id]?.cards ?? 0
  if (table.stuck < table.order.length) nextTurn(table)
  else
    finish(
      table,
      table.order.reduce((best, id) => (count(id) < count(best) ? id : best)),
    )
}

/** A bot plays the first card that fits. If no card fits, it draws a card, and plays this card if it fits. */
export function playForBot(table: Table, random: Random): void {
  const find = (): Card | undefined =>
    table.hands[table.turn.of]?.find((card) => fits(card, top(table), table.suit))
  let card = find()
  if (!card && draw(table, random)) card = find()
  if (card) put(table, card, bestSuit(table.hands[table.turn.of]!))
  else pass(table)
}

function beginTurn(table: Table, of: string): void {
  table.turn = { of, number: table.turn.number + 1, endsAt: 0, drew: false }
}

function nextTurn(table: Table): void {
  const { order, turn } = table
  beginTurn(table, order[(order.indexOf(turn.of) + 1) % order.length]!)
}

function finish(table: Table, winner: string): void {
  table.phase = 'over'
  table.winner = winner
  table.players[winner]!.wins += 1
}
