import { defineRoom, type RoomContext } from 'roomful'
import * as v from 'valibot'
import { type Board, emptyBoard, type Mark, otherMark, outcome } from './board.ts'

interface TicTacToeState {
  board: Board
  /** The next mark to move. X starts every game. */
  turn: Mark
  winner: Mark | 'draw' | null
  /** Member ids of the two players; null: no player. All other members watch. */
  players: Record<Mark, string | null>
}

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
  const mark = seatOf(state, memberId)
  if (!mark)
    return refuse('you are watching: both seats are taken, and only X and O move')
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

/** Two players take turns, all other members watch. The room is the referee. */
export default defineRoom({
  type: 'tictactoe',
  maxPlayers: 100,
  messages: {
    move: {
      data: v.object({
        cell: v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(8)),
      }),
      rate: { perSecond: 5, burst: 20 },
    },
    restart: { data: v.nullish(v.object({}), {}), rate: { perSecond: 1, burst: 10 } },
  },
  events: { over: v.object({ winner: v.picklist(['X', 'O', 'draw']) }) },
  sync: { rate: 0 },
  durability: 'journal',
  idleSeconds: 60,
  // Long enough for a reload or a short outage. After that, a spectator may play.
  reconnectSeconds: 30,
  create: (): TicTacToeState => ({
    board: emptyBoard(),
    turn: 'X',
    winner: null,
    players: { X: null, O: null },
  }),

  onJoin(state, member, ctx) {
    // After closing the tab, a player returns as a new member. The player's former member
    // is still in the room, disconnected: the new member takes over its mark.
    const away = ctx.members.filter(({ connected }) => !connected)
    const mine = away.filter(({ sub }) => sub !== null && sub === member.sub)
    const seat =
      MARKS.find((mark) => state.players[mark] === null) ??
      MARKS.find((mark) => mine.some((other) => other.id === state.players[mark]))
    if (seat) state.players[seat] = member.id
  },

  onMessage(state, input, ctx) {
    const { id: memberId } = input.member
    if (input.type === 'restart') {
      if (!seatOf(state, memberId))
        return ctx.refuse('you are watching: only X and O may start another game')
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

  onLeave(state, member, ctx) {
    const seat = seatOf(state, member.id)
    if (!seat) return
    // The spectator who has waited longest takes over, and the game continues.
    const next = ctx.members.find((other) => !seatOf(state, other.id))
    state.players[seat] = next?.id ?? null
  },
})
