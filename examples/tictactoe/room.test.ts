import { testRooms } from 'roomful/test'
import { expect, test } from 'vitest'
import tictactoe from './room.ts'

async function table() {
  const t = await testRooms([tictactoe])
  const [x, o] = await t.join('tictactoe', 2)
  return { t, x, o }
}

/** Plays the cells in turn, X first. */
async function moves({ x, o }: Pick<Awaited<ReturnType<typeof table>>, 'x' | 'o'>, cells: number[]) {
  for (const [index, cell] of cells.entries()) await (index % 2 ? o : x).send('move', { cell })
}

test('the first member is X, the second O, and the others watch', async () => {
  const { t, x, o } = await table()
  const [guest] = await t.join('tictactoe')
  const players = { X: x.memberId, O: o.memberId }
  expect(guest.state).toEqual({ board: Array(9).fill(null), turn: 'X', winner: null, players })
  await expect(guest.send('move', { cell: 0 })).rejects.toThrow('you are watching')
  await expect(guest.send('restart', {})).rejects.toThrow('you are watching')
})

test('players take turns, and every refusal has a reason', async () => {
  const game = await table()
  const { x, o } = game
  await expect(o.send('move', { cell: 0 })).rejects.toThrow('not your turn: X moves')
  await moves(game, [4])
  expect(x.state.turn).toBe('O')
  await expect(x.send('move', { cell: 0 })).rejects.toThrow('not your turn: O moves')
  await expect(o.send('move', { cell: 4 })).rejects.toThrow('cell 4 is taken by X')
  for (const cell of [9, 0.5])
    await expect(o.send('move', { cell })).rejects.toMatchObject({ code: 'invalid_payload' })
  expect(o.state.board.filter(Boolean)).toEqual(['X'])
})

test.each([
  ['a row', [0, 3, 1, 4, 2], 'X'],
  ['a column', [0, 1, 3, 4, 8, 7], 'O'],
  ['a diagonal', [2, 0, 4, 1, 6], 'X'],
  ['no line at all', [0, 1, 2, 4, 3, 5, 7, 6, 8], 'draw'],
])(
  '%s ends the game, each member gets one event, and further moves are refused',
  async (_, cells, winner) => {
    const game = await table()
    const told: string[] = []
    game.o.on('over', (over) => told.push(over.winner))
    await moves(game, cells)
    expect(game.x.state.winner).toBe(winner)
    expect(told).toEqual([winner])
    for (const player of [game.x, game.o])
      await expect(player.send('move', { cell: 5 })).rejects.toThrow('the game is over')
  },
)

test('a restart clears the board for the same players', async () => {
  const game = await table()
  await moves(game, [0, 3, 1, 4, 2])
  await game.o.send('restart', null)
  const players = { X: game.x.memberId, O: game.o.memberId }
  expect(game.x.state).toEqual({ board: Array(9).fill(null), turn: 'X', winner: null, players })
})

test('a seat of a player who leaves goes to the spectator who has waited longest, and the game continues', async () => {
  const game = await table()
  const [first] = await game.t.join('tictactoe', 2)
  await moves(game, [0, 4])
  await game.x.leave()
  expect(first.state.players).toEqual({ X: first.memberId, O: game.o.memberId })
  await first.send('move', { cell: 1 })
  expect(game.o.state.board.slice(0, 5)).toEqual(['X', 'X', null, null, 'O'])
})

test('moves are refused until both seats are taken, and a free seat goes to the next member', async () => {
  const { t, x, o } = await table()
  await x.leave()
  await expect(o.send('move', { cell: 0 })).rejects.toThrow('not enough players: the seat of X is empty')
  const [next] = await t.join('tictactoe')
  expect(o.state.players).toEqual({ X: next.memberId, O: o.memberId })
})

test('a player who returns as another member gets the kept seat, but not while the old connection is open', async () => {
  const t = await testRooms([tictactoe])
  const [old, o] = await t.join('tictactoe', [{ sub: 'player-1' }, { sub: 'player-2' }])
  await t.join('tictactoe', [{ sub: 'player-1' }])
  expect(o.state.players).toEqual({ X: old.memberId, O: o.memberId })
  await t.drop(old)
  const [again] = await t.join('tictactoe', [{ sub: 'player-1' }])
  expect(o.state.players).toEqual({ X: again.memberId, O: o.memberId })
})

test('a game continues after its node was killed', async () => {
  const game = await table()
  await moves(game, [0, 4, 1])
  await game.t.killOwner()
  expect(game.o.state.board.slice(0, 5)).toEqual(['X', 'X', null, null, 'O'])
  await game.o.send('move', { cell: 2 })
  expect(game.x.state.turn).toBe('X')
})
