import { type ContextOf, defineRoom, type Member, type RoomContext } from 'roomful'
import * as v from 'valibot'
import { type Card, fits, SUITS, TURN_MS } from './rules.ts'
import {
  arrive,
  canDraw,
  deal,
  depart,
  draw,
  newTable,
  pass,
  playForBot,
  put,
  sendBotsAway,
  type Table,
  top,
} from './table.ts'

/** Delay of a bot's move. */
const BOT_MS = 1500
/** Time for which the room keeps the place of a player for whom a bot plays. */
const RETURN_SECONDS = 60

/**
 * Crazy Eights for two to four players. The room deals, enforces the rules and the time
 * limit, and shows each player only that player's cards.
 */
const cards = defineRoom({
  type: 'cards',
  maxPlayers: 4,
  spectators: { max: 36 },
  reconnectSeconds: 20,
  idleSeconds: 60,
  // If a reloaded page has lost its session, its next one gets the same hand.
  sameSub: 'replace',
  sync: { rate: 0 },
  durability: 'journal',
  create: newTable,
  // A player who creates a table gets a code for a friend.
  codes: true,
  // Only the member whose id is the key receives a hand. No member receives the deck.
  layers: { 'hands.*': (memberId) => `member:${memberId}`, deck: null },
  messages: {
    /** Starts a game. */
    deal: {
      handle(state, _input, ctx) {
        if (state.phase === 'playing') return ctx.refuse('a game is being played')
        sendBotsAway(state)
        for (const player of ctx.players) arrive(state, player)
        if (state.order.length < 2)
          return ctx.refuse('it takes two: wait for a player, or open a second tab')
        deal(state, ctx.random)
        goOn(state, ctx)
      },
    },
    /** Plays a card. With an eight, `suit` sets the next suit. */
    play: {
      data: v.object({ card: v.string(), suit: v.optional(v.picklist(SUITS), '♠') }),
      rate: { perSecond: 5, burst: 10 },
      handle(state, { data, member }, ctx) {
        const card = handOnTurn(state, member, ctx).find((held) => held === data.card)
        if (!card) return ctx.refuse(`you do not hold ${data.card}`)
        if (!fits(card, top(state), state.suit))
          return ctx.refuse(
            `${card} does not fit: ${state.suit}, ${top(state)}’s rank or an 8 does`,
          )
        put(state, card, data.suit)
        goOn(state, ctx)
      },
    },
    /** Draws a card, once per turn. Only the sender gets the reply. */
    draw: {
      reply: v.object({ card: v.string() }),
      handle(state, { member }, ctx) {
        handOnTurn(state, member, ctx)
        if (state.turn.drew) return ctx.refuse('you have drawn: play a card, or pass')
        const card = draw(state, ctx.random)
        if (!card) return ctx.refuse('no card is left to draw: play one, or pass')
        ctx.reply({ card })
      },
    },
    pass: {
      handle(state, { member }, ctx) {
        handOnTurn(state, member, ctx)
        if (!state.turn.drew && canDraw(state))
          return ctx.refuse('draw a card before you pass')
        pass(state)
        goOn(state, ctx)
      },
    },
  },
  events: {
    timedOut: v.object({ player: v.string() }),
    over: v.object({ winner: v.string() }),
  },
  timers: {
    /** Committed with its turn. It fires once, on the node that runs the room then. */
    turnEnds: {
      data: v.object({ number: v.number() }),
      handle(state, { data }, ctx) {
        const { of, number, drew } = state.turn
        if (data.number !== number) return
        if (state.players[of]?.bot) playForBot(state, ctx.random)
        else {
          ctx.emit('timedOut', { player: of })
          if (!drew) draw(state, ctx.random)
          pass(state)
        }
        goOn(state, ctx)
      },
    },
  },

  // Also for a spectator to whom `goOn` has given a place.
  onJoin(state, member, ctx) {
    arrive(state, member)
    goOn(state, ctx)
  },

  // A disconnected player keeps the seat for `reconnectSeconds`. The others see
  // `connected: false`, and the player's turns time out.
  onLeave(state, member, ctx) {
    depart(state, member.id)
    if (state.phase !== 'playing') {
      sendBotsAway(state)
      for (const player of ctx.players) arrive(state, player)
    } else if (member.sub !== null) ctx.reserve(member.sub, RETURN_SECONDS)
    goOn(state, ctx)
  },
})
export default cards

/** Returns the hand of the member whose turn it is. Refuses other members. */
function handOnTurn(table: Table, member: Member, { refuse }: RoomContext): Card[] {
  if (table.phase !== 'playing') return refuse('no game is being played: deal first')
  if (!table.players[member.id]) return refuse('you play from the next game on')
  if (table.turn.of !== member.id) return refuse('it is not your turn')
  return table.hands[member.id] ?? []
}

/** Starts a turn, or ends the game. Without a game, spectators take free places. */
function goOn(table: Table, ctx: ContextOf<typeof cards>): void {
  const { phase, turn, winner, players } = table
  if (phase !== 'playing') ctx.cancel('turn')
  if (phase === 'over' && winner !== null && turn.endsAt > 0) ctx.emit('over', { winner })
  if (phase !== 'playing') {
    turn.endsAt = 0
    for (const spectator of ctx.spectators) ctx.seat(spectator)
  } else if (turn.endsAt === 0) {
    const ms = players[turn.of]?.bot ? BOT_MS : TURN_MS
    turn.endsAt = ctx.now + ms
    ctx.after(ms, 'turnEnds', { number: turn.number }, { id: 'turn' })
  }
}
