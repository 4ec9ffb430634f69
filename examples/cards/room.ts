import { defineRoom, type Member, type RoomContext } from 'roomful'
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

/** So long a bot seems to think. */
const BOT_MS = 1500

/** Crazy Eights for two to four: the room deals, holds everyone to the rules and to their time, and shows each player its own cards only. */
export default defineRoom({
  type: 'cards',
  maxMembers: 40,
  reconnectSeconds: 20,
  idleSeconds: 60,
  sync: { rate: 0 },
  durability: 'journal',
  create: newTable,
  // A hand is for the member whose id is its key. The deck is for no one.
  layers: { 'hands.*': (memberId) => `member:${memberId}`, deck: null },
  messages: {
    /** Begins a game, or another one. */
    deal: {
      data: v.null(),
      handle(state, { member }, ctx) {
        if (state.phase === 'playing') return ctx.refuse('a game is being played')
        if (!state.players[member.id]) return ctx.refuse('you are watching: all seats are taken')
        sendBotsAway(state)
        for (const other of ctx.members) arrive(state, other)
        if (state.order.length < 2) return ctx.refuse('it takes two: wait for someone, or open a second tab')
        deal(state, ctx.random)
        goOn(state, ctx)
      },
    },
    /** Plays a card; with an eight, `suit` is what is asked for next. */
    play: {
      data: v.object({ card: v.string(), suit: v.optional(v.picklist(SUITS), '♠') }),
      rate: { perSecond: 5, burst: 10 },
      handle(state, { data, member }, ctx) {
        const card = handOnTurn(state, member, ctx).find((held) => held === data.card)
        if (!card) return ctx.refuse(`you do not hold ${data.card}`)
        if (!fits(card, top(state), state.suit))
          return ctx.refuse(
            `${card} does not go there: ${state.suit}, the rank of ${top(state)}, or an 8 does`,
          )
        put(state, card, data.suit)
        goOn(state, ctx)
      },
    },
    /** Takes a card of the deck, once in a turn. The reply is for the one who drew. */
    draw: {
      data: v.null(),
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
      data: v.null(),
      handle(state, { member }, ctx) {
        handOnTurn(state, member, ctx)
        if (!state.turn.drew && canDraw(state)) return ctx.refuse('draw a card before you pass')
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
    /** Set with its turn and committed with it, so it fires once, wherever the room runs by then. */
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

  onJoin(state, member, ctx) {
    arrive(state, member)
    goOn(state, ctx)
  },

  // Who has lost the connection keeps its seat for `reconnectSeconds`: `connected` shows it to the others, and its turns time out.
  onLeave(state, member, ctx) {
    depart(state, member.id)
    if (state.phase !== 'playing') {
      sendBotsAway(state)
      for (const other of ctx.members) arrive(state, other)
    }
    goOn(state, ctx)
  },
})

/** The hand of a member whose turn it is; refuses when it is not. */
function handOnTurn(table: Table, member: Member, { refuse }: Pick<RoomContext, 'refuse'>): Card[] {
  if (!table.players[member.id]) return refuse('you are watching')
  if (table.phase !== 'playing') return refuse('no game is being played: deal first')
  if (table.turn.of !== member.id) return refuse('it is not your turn')
  return table.hands[member.id] ?? []
}

/** The clock of a turn that has just begun, or the end of the game. */
function goOn(table: Table, ctx: Pick<RoomContext, 'now' | 'after' | 'cancel' | 'emit'>): void {
  const { phase, turn, winner, players } = table
  if (phase !== 'playing') ctx.cancel('turn')
  if (phase === 'over' && winner !== null && turn.endsAt > 0) ctx.emit('over', { winner })
  if (phase !== 'playing') turn.endsAt = 0
  else if (turn.endsAt === 0) {
    const ms = players[turn.of]?.bot ? BOT_MS : TURN_MS
    turn.endsAt = ctx.now + ms
    ctx.after(ms, 'turnEnds', { number: turn.number }, { id: 'turn' })
  }
}
