import { Confetti } from '../ui/confetti.ts'
import { byId } from '../ui/dom.ts'
import { nameOf } from '../ui/identity.ts'
import { type Stage, startGame } from '../ui/stage.ts'
import { type Mark, winningLine } from './board.ts'
import { BoardView } from './board-view.ts'
import type tictactoe from './room.ts'

type State = Stage<typeof tictactoe>['room']['state']

const MARKS: readonly Mark[] = ['X', 'O']

/** Seats, status line and board, for a player or a spectator. */
class Table {
  readonly #stage: Stage<typeof tictactoe>
  readonly #board: BoardView
  readonly #confetti = new Confetti(document.body)
  readonly #restart = byId('restart', HTMLButtonElement)

  constructor(stage: Stage<typeof tictactoe>) {
    this.#stage = stage
    const { room, toasts } = stage
    this.#board = new BoardView(byId('board', HTMLElement), (cell) => {
      room.send('move', { cell }).catch((error: unknown) => {
        this.#board.refuse(cell)
        toasts.refuse(error)
      })
    })
    this.#restart.addEventListener('click', () => {
      room.send('restart', {}).catch((error: unknown) => toasts.refuse(error))
    })
    for (const button of document.querySelectorAll('.take'))
      button.addEventListener('click', () => {
        room.send('sit').catch((error: unknown) => toasts.refuse(error))
      })
    room.on('over', ({ winner }) => {
      if (winner === this.#myMark(room.state)) this.#confetti.burst(innerWidth / 2, innerHeight * 0.6)
    })
    room.onStateChange(() => this.#show())
    room.onMembersChange(() => this.#show())
    // The remaining time of a disconnected player.
    setInterval(() => this.#show(), 1000)
    this.#show()
  }

  #myMark(state: State): Mark | undefined {
    return MARKS.find((mark) => state.players[mark] === this.#stage.room.memberId)
  }

  #member(memberId: string | null) {
    return this.#stage.room.members.find((member) => member.id === memberId)
  }

  #show(): void {
    const { room } = this.#stage
    const { state } = room
    const mine = this.#myMark(state)
    for (const mark of MARKS) this.#showSeat(mark, state)
    byId('verdict', HTMLElement).textContent = this.#verdict(state, mine)
    this.#board.show(state.board, winningLine(state.board), state.winner !== null, {
      mark: mine,
      turn: mine !== undefined && mine === state.turn && state.winner === null && this.#isFull(state),
    })
    this.#restart.hidden = mine === undefined || state.board.every((cell) => cell === null)
    this.#restart.classList.toggle('primary', state.winner !== null)
    byId('watching', HTMLElement).textContent = room.spectators > 0 ? `${room.spectators} watching` : ''
  }

  #isFull(state: State): boolean {
    return MARKS.every((mark) => state.players[mark] !== null)
  }

  #showSeat(mark: Mark, state: State): void {
    const seat = byId(`seat-${mark}`, HTMLElement)
    const memberId = state.players[mark]
    const active = state.winner === null ? this.#isFull(state) && state.turn === mark : state.winner === mark
    seat.classList.toggle('empty', memberId === null)
    seat.classList.toggle('turn', active)
    const { room, serverTime } = this.#stage
    const [who, note] = [seat.querySelector('.who'), seat.querySelector('.note')]
    if (who) who.textContent = memberId === null ? 'Free seat' : nameOf(memberId, this.#member(memberId)?.sub)
    const freeAt = state.freeAt[mark]
    const mine = memberId === room.memberId
    const away = freeAt !== null && !mine
    const seconds = Math.max(0, Math.ceil(((freeAt ?? 0) - serverTime()) / 1000))
    const role = mine ? `you play ${mark}` : `plays ${mark}`
    if (note) note.textContent = away ? `offline · ${seconds} s` : memberId === null ? '' : role
    seat.classList.toggle('away', away)
    const take = seat.querySelector('button')
    if (take) take.hidden = memberId !== null || !room.spectator
  }

  #verdict(state: State, mine: Mark | undefined): string {
    if (state.winner === 'draw') return 'A draw.'
    if (state.winner) return state.winner === mine ? 'You have won!' : `${state.winner} has won.`
    if (!this.#isFull(state))
      return mine === undefined ? 'A seat is free. Take it to play.' : 'Waiting for a second player …'
    const away = MARKS.find((mark) => state.freeAt[mark] !== null)
    if (mine === undefined && away) return `You are watching. ${away} is away.`
    if (mine === undefined) return `You are watching. ${state.turn} moves.`
    return state.turn === mine ? 'Your move.' : `${state.turn} is thinking …`
  }
}

const play = (stage: Stage<typeof tictactoe>) => void new Table(stage)

void startGame<typeof tictactoe>('tictactoe', play, { watch: true })
