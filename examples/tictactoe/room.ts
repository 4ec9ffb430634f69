import { defineRoom, type RoomContext } from 'roomful'
import * as v from 'valibot'
import { type Board, emptyBoard, type Mark, otherMark, outcome } from './board.ts'

interface TicTacToeState {
  board: Board
  /** The next mark to move. X starts every game. */
  turn: Mark
  winner: Mark | 'draw' | null
  /** Member ids of the two players; null: the seat is free. */
  players: Record<Mark, string | null>
  /** When the seat of a disconnected player becomes free, in the server's time. */
  freeAt: Record<Mark, number | null>
}

/** Enough for a reload or a short outage. Then a spectator may take the seat. */
const RECONNECT_SECONDS = 20

const MARKS: readonly Mark[] = ['X', 'O']

const seatOf = (state: TicTacToeState, memberId: string): Mark | undefined =>
  MARKS.find((mark) => state.players[mark] === memberId)

/** Returns the mark that a member may set into `cell`. Refuses illegal moves. */
function legalMark(
  state: TicTacToeState,
  memberId: string,
  cell: number,
  { refuse }: RoomContext,
): Mark {
  const mark = seatOf(state, memberId)!
  if (state.winner === 'draw')
    return refuse('the game is over: it is a draw; send restart for another')
  if (state.winner)
    return refuse(`the game is over: ${state.winner} has won; send restart for another`)
  const empty = MARKS.find((seat) => state.players[seat] === null)
  if (empty) return refuse(`not enough players: the seat of ${empty} is empty`)
  if (state.turn !== mark)
    return refuse(`it is not your turn: ${state.turn} moves, you are ${mark}`)
  const taken = state.board[cell]
  if (taken) return refuse(`cell ${cell} is taken by ${taken}: choose an empty one`)
  return mark
}

/** Two players take turns, and spectators watch. The room is the referee. */
export default defineRoom({
  type: 'tictactoe',
  maxPlayers: 2,
  spectators: { max: 100 },
  messages: {
    move: {
      data: v.object({
        cell: v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(8)),
      }),
      rate: { perSecond: 5, burst: 20 },
    },
    restart: { data: v.nullish(v.object({}), {}), rate: { perSecond: 1, burst: 10 } },
    /** A spectator takes a free seat. */
    sit: {
      spectators: true,
      rate: { perSecond: 1, burst: 10 },
      handle(_state, { member }, ctx) {
        if (!ctx.seat(member)) ctx.refuse('no seat is free')
      },
    },
  },
  events: { over: v.object({ winner: v.picklist(['X', 'O', 'draw']) }) },
  sync: { rate: 0 },
  durability: 'journal',
  idleSeconds: 60,
  reconnectSeconds: RECONNECT_SECONDS,
  create: (): TicTacToeState => ({
    board: emptyBoard(),
    turn: 'X',
    winner: null,
    players: { X: null, O: null },
    freeAt: { X: null, O: null },
  }),

  // Also for a spectator that has taken a seat.
  onJoin(state, member) {
    const mark = MARKS.find((mark) => state.players[mark] === null)!
    state.players[mark] = member.id
  },

  onDisconnect(state, member, ctx) {
    state.freeAt[seatOf(state, member.id)!] = ctx.now + RECONNECT_SECONDS * 1000
  },

  onReconnect(state, member) {
    state.freeAt[seatOf(state, member.id)!] = null
  },

  onMessage(state, input, ctx) {
    const { id: memberId } = input.member
    if (input.type === 'restart') {
      state.board = emptyBoard()
      state.turn = 'X'
      state.winner = null
      return
    }

    const mark = legalMark(state, memberId, input.data.cell, ctx)
    state.board[input.data.cell] = mark
    state.turn = otherMark(mark)
    state.winner = outcome(state.board)
    if (state.winner) ctx.emit('over', { winner: state.winner })
  },

  onLeave(state, member) {
    const mark = seatOf(state, member.id)!
    state.players[mark] = null
    state.freeAt[mark] = null
  },
})
