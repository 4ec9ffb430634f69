import { expect, test } from 'vitest'
import { Play } from '../play.suite.ts'
import tictactoe from './room.ts'

function table() {
  const room = new Play(tictactoe)
  return { room, x: room.join('xena'), o: room.join('olaf') }
}

/** Plays the cells in turn, X first. */
function moves({ room, x, o }: ReturnType<typeof table>, cells: number[]) {
  for (const [index, cell] of cells.entries()) room.send(index % 2 ? o : x, 'move', { cell })
}

test('the first to join is X, the second O, the others watch', () => {
  const { room, x, o } = table()
  const guest = room.join('guest')
  expect(room.state).toEqual({ board: Array(9).fill(null), turn: 'X', winner: null, players: { X: x, O: o } })
  expect(() => room.send(guest, 'move', { cell: 0 })).toThrow('you are watching')
  expect(() => room.send(guest, 'restart', {})).toThrow('you are watching')
})

test('players take turns, and every refusal says why', () => {
  const game = table()
  const { room, x, o } = game
  expect(() => room.send(o, 'move', { cell: 0 })).toThrow('not your turn: X moves')
  moves(game, [4])
  expect(room.state.turn).toBe('O')
  expect(() => room.send(x, 'move', { cell: 0 })).toThrow('not your turn: O moves')
  expect(() => room.send(o, 'move', { cell: 4 })).toThrow('cell 4 is taken by X')
  expect(() => room.send(o, 'move', { cell: 9 })).toThrow()
  expect(() => room.send(o, 'move', { cell: 0.5 })).toThrow()
  expect(room.state.board.filter(Boolean)).toEqual(['X'])
})

test('no one moves before both seats are taken', () => {
  const room = new Play(tictactoe)
  const x = room.join('xena')
  expect(() => room.send(x, 'move', { cell: 0 })).toThrow('not enough players: the seat of O is empty')
})

test.each([
  ['a row', [0, 3, 1, 4, 2], 'X'],
  ['a column', [0, 1, 3, 4, 8, 7], 'O'],
  ['a diagonal', [2, 0, 4, 1, 6], 'X'],
  ['no line at all', [0, 1, 2, 4, 3, 5, 7, 6, 8], 'draw'],
])('%s ends the game, everyone is told once, and then no one moves', (_, cells, winner) => {
  const game = table()
  moves(game, cells)
  const { room, x, o } = game
  expect(room.state.winner).toBe(winner)
  expect(room.events).toMatchObject([{ name: 'over', data: { winner } }])
  for (const player of [x, o])
    expect(() => room.send(player, 'move', { cell: 5 })).toThrow('the game is over')
})

test('a restart clears the board for the same players', () => {
  const game = table()
  moves(game, [0, 3, 1, 4, 2])
  game.room.send(game.o, 'restart', null)
  expect(game.room.state).toEqual({
    board: Array(9).fill(null),
    turn: 'X',
    winner: null,
    players: { X: game.x, O: game.o },
  })
})

test('a seat that is given up goes to the one who has watched longest, and the game goes on', () => {
  const game = table()
  const [first] = [game.room.join('first'), game.room.join('second')]
  moves(game, [0, 4])
  game.room.leave(game.x)
  expect(game.room.state.players).toEqual({ X: first, O: game.o })
  game.room.send(first, 'move', { cell: 1 })
  expect(game.room.state.board.slice(0, 5)).toEqual(['X', 'X', null, null, 'O'])
})

test('an empty seat waits for the next to join', () => {
  const { room, x, o } = table()
  room.leave(x)
  expect(() => room.send(o, 'move', { cell: 0 })).toThrow('not enough players: the seat of X is empty')
  const next = room.join('next')
  expect(room.state.players).toEqual({ X: next, O: o })
})

test('a player who comes back by another connection gets the seat that the old one still holds', () => {
  const room = new Play(tictactoe)
  room.join('old', 'player-1')
  const o = room.join('olaf', 'player-2')
  const again = room.join('again', 'player-1')
  expect(room.state.players).toEqual({ X: again, O: o })
  room.leave('old')
  expect(room.state.players).toEqual({ X: again, O: o })
})
