import { testRooms } from 'roomful/test'
import { expect, test } from 'vitest'
import tictactoe from './room.ts'

async function table() {
  const t = await testRooms([tictactoe])
  const [x, o] = await t.join('tictactoe', [{ sub: 'ada' }, { sub: 'bob' }])
  return { t, x, o }
}

/** Plays the cells in turn, X first. */
async function moves({ x, o }: Pick<Awaited<ReturnType<typeof table>>, 'x' | 'o'>, cells: number[]) {
  for (const [index, cell] of cells.entries()) await (index % 2 ? o : x).send('move', { cell })
}

/** Joins a spectator. */
async function watcher({ t }: Pick<Awaited<ReturnType<typeof table>>, 't'>, sub = 'guest') {
  const [room] = await t.join('tictactoe', [{ sub }], {}, { watch: true })
  return room
}

const EMPTY = { board: Array(9).fill(null), turn: 'X', winner: null, freeAt: { X: null, O: null } }

test('the first player is X, the second O, and no third one plays', async () => {
  const { t, x, o } = await table()
  await expect(t.join('tictactoe')).rejects.toMatchObject({ code: 'room_full' })
  const guest = await watcher({ t })
  expect(guest.state).toEqual({ ...EMPTY, players: { X: x.memberId, O: o.memberId } })
  for (const type of ['move', 'restart'] as const)
    await expect(guest.send(type, { cell: 0 })).rejects.toMatchObject({ code: 'not_a_player' })
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
  expect(game.x.state).toEqual({ ...EMPTY, players })
})

test('a spectator takes the seat of a player who has left, and the game continues', async () => {
  const game = await table()
  const guests = [await watcher(game, 'eve'), await watcher(game, 'kim')] as const
  await moves(game, [0, 4])
  await expect(guests[0].send('sit')).rejects.toThrow('no seat is free')
  await game.x.leave()
  await expect(game.o.send('move', { cell: 1 })).rejects.toThrow('not enough players: the seat of X is empty')
  await guests[1].send('sit')
  expect([guests[1].spectator, guests[1].state.players.X]).toEqual([false, guests[1].memberId])
  await expect(guests[0].send('sit')).rejects.toThrow('no seat is free')
  await guests[1].send('move', { cell: 1 })
  expect(game.o.state.board.slice(0, 5)).toEqual(['X', 'X', null, null, 'O'])
})

test('a spectator sees when the seat of a disconnected player becomes free, and takes it then', async () => {
  const game = await table()
  const guest = await watcher(game)
  await game.t.drop(game.x)
  const freeAt = guest.state.freeAt.X!
  expect(freeAt - game.t.now).toBeGreaterThan(19_000)
  await game.t.advance(freeAt - game.t.now - 1000)
  await expect(guest.send('sit')).rejects.toThrow('no seat is free')
  await game.t.advance(2000)
  await guest.send('sit')
  expect(guest.state).toMatchObject({
    players: { X: guest.memberId, O: game.o.memberId },
    freeAt: { X: null, O: null },
  })
})

test('a player who returns from another device gets the seat again', async () => {
  const t = await testRooms([tictactoe])
  const [old, o] = await t.join('tictactoe', [{ sub: 'player-1' }, { sub: 'player-2' }])
  await t.drop(old)
  expect(o.state.freeAt.X).not.toBeNull()
  const [again] = await t.join('tictactoe', [{ sub: 'player-1' }])
  expect([again.memberId, o.state.freeAt.X]).toEqual([old.memberId, null])
  expect(o.state.players).toEqual({ X: old.memberId, O: o.memberId })
})

test('a game continues after its node was killed', async () => {
  const game = await table()
  await moves(game, [0, 4, 1])
  await game.t.killOwner()
  expect(game.o.state.board.slice(0, 5)).toEqual(['X', 'X', null, null, 'O'])
  await game.o.send('move', { cell: 2 })
  expect(game.x.state.turn).toBe('X')
})
