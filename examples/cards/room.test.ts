import type { Room } from 'roomful/client'
import { type Players, type TestRooms, testRooms } from 'roomful/test'
import { expect, test } from 'vitest'
import queue from './queue.ts'
import room from './room.ts'
import { bestSuit, type Card, fits, isEight } from './rules.ts'

type Cards = Room<typeof room>

/** A game with this number of players, after the deal. */
async function game(players: Players = 2, seed = 1) {
  const t: TestRooms<readonly [typeof room]> = await testRooms([room], { seed })
  const seats: Cards[] = await t.join('cards', players)
  await seats[0]!.send('deal')
  const turn = () => seats.find((seat) => seat.memberId === seats.at(-1)!.state.turn.of)!
  /** Lets the player whose turn it is play, draw or pass, after a moment. */
  const move = async (): Promise<void> => {
    const seat = turn()
    await t.advance(300)
    if (!playable(seat)) await seat.request('draw').catch(() => undefined)
    const card = playable(seat)
    if (!card) await seat.send('pass')
    else await seat.send('play', { card, suit: bestSuit(handOf(seat).filter((held) => held !== card)) })
  }
  return { t, seats, turn, move }
}

/** Joins a spectator. */
async function watch(t: TestRooms<readonly [typeof room]>): Promise<Cards> {
  const [watcher] = await t.join('cards', 1, {}, { watch: true })
  return watcher
}

const handOf = ({ state, memberId }: Cards): readonly Card[] => state.hands[memberId] ?? []
const topOf = ({ state }: Cards): Card => state.pile.at(-1)!
const playable = (seat: Cards): Card | undefined =>
  handOf(seat).find((card) => fits(card, topOf(seat), seat.state.suit))

/** Returns the cards that these bytes contain. */
const cardsIn = (frames: readonly Uint8Array[]): Set<string> =>
  new Set(
    Buffer.concat(frames)
      .toString()
      .match(/(?:10|[2-9AJQK])[♠♥♦♣]/gu),
  )

test('no byte of a foreign hand or of the deck ever reaches a player or a spectator', async () => {
  const { t, seats, move } = await game(4)
  const watcher = await watch(t)
  expect(watcher.state.order).toHaveLength(4)
  const everyone = [...seats, watcher]
  const seen = new Map(everyone.map((one) => [one, { known: new Set<string>(), frames: 0 }]))
  const check = (): void => {
    for (const [one, { known, frames }] of seen) {
      for (const card of [...handOf(one), ...one.state.pile]) known.add(card)
      const received = t.received(one)
      for (const card of cardsIn(received.slice(frames)))
        expect(known, `${one.memberId} received ${card}`).toContain(card)
      seen.set(one, { known, frames: received.length })
      expect(Object.keys(one.state.hands ?? {})).toEqual(one === watcher ? [] : [one.memberId])
      expect(one.state.deck).toBeUndefined()
    }
  }
  check()
  for (let moves = 0; watcher.state.phase === 'playing'; moves++) {
    await move()
    if (moves === 6) await t.killOwner()
    check()
  }
  expect(watcher.state.winner).not.toBeNull()
  // Check of the test: the received bytes contain the played cards.
  expect(cardsIn(t.received(watcher)).size).toBeGreaterThan(1)
})

test('players take turns by the rules, and every refusal has a reason', async () => {
  const { t, seats, turn } = await game()
  const watcher = await watch(t)
  const now = turn()
  const other = seats.find((seat) => seat !== now)!
  const refused = (asked: Promise<unknown>, why: string) => expect(asked).rejects.toThrow(why)
  await refused(other.send('play', { card: handOf(other)[0]! }), 'it is not your turn')
  await expect(watcher.request('draw')).rejects.toMatchObject({ code: 'not_a_player' })
  await refused(now.send('play', { card: handOf(other)[0]! }), `you do not hold ${handOf(other)[0]}`)
  await refused(now.send('deal'), 'a game is being played')
  await refused(now.send('pass'), 'draw a card before you pass')
  const before = handOf(now)
  const { card } = await now.request('draw')
  expect(handOf(now)).toEqual([...before, card])
  await refused(now.request('draw'), 'you have drawn')
  const misfit = handOf(now).find((held) => !fits(held, topOf(now), now.state.suit))
  await refused(now.send('play', { card: misfit! }), `${misfit} does not fit`)
  await now.send('pass')
  expect(turn()).toBe(other)
  expect(now.state.players[now.memberId]?.cards).toBe(before.length + 1)
})

test('an eight fits any card, and the next card must have the chosen suit', async () => {
  const { t, turn, move } = await game()
  // Some player gets one before long.
  while (!handOf(turn()).some(isEight)) await move()
  const seat = turn()
  await t.advance(300)
  const eight = handOf(seat).find(isEight)!
  await seat.send('play', { card: eight, suit: '♦' })
  expect(topOf(seat)).toBe(eight)
  expect(seat.state.suit).toBe('♦')
})

test('a turn ends after 20 seconds, once, also after its node was killed', async () => {
  const { t, seats, turn, move } = await game()
  const slow = turn()
  const told: string[] = []
  seats[0]!.on('timedOut', ({ player }) => told.push(player))
  const { cards } = slow.state.players[slow.memberId]!
  const left = () => slow.state.turn.endsAt - t.now
  await t.advance(10_000)
  await t.killOwner()
  await t.advance(left() - 200)
  expect(turn()).toBe(slow)
  await t.advance(1000)
  expect(told).toEqual([slow.memberId])
  expect(turn()).not.toBe(slow)
  expect(slow.state.players[slow.memberId]?.cards).toBe(cards + 1)
  // A move in time ends its turn, and starts the next one with the full time.
  await move()
  expect(left()).toBeGreaterThan(19_000)
  await t.advance(left() - 200)
  expect(told).toHaveLength(1)
})

test('a player who loses the connection is shown as disconnected, and a bot plays when the seat has expired', async () => {
  const { t, seats, move } = await game([{ sub: 'ada' }, { sub: 'bob' }])
  const [ada, bob] = seats as [Cards, Cards]
  await t.drop(ada)
  expect(bob.members.find(({ id }) => id === ada.memberId)?.connected).toBe(false)
  expect(bob.state.players[ada.memberId]?.bot).toBe(false)
  await t.advance(25_000)
  expect(bob.state.players[ada.memberId]).toMatchObject({ bot: true, sub: 'ada' })
  if (bob.state.turn.of !== bob.memberId) await t.advance(2000)
  for (let moves = 0; moves < 3 && bob.state.phase === 'playing'; moves++) {
    expect(bob.state.turn.of).toBe(bob.memberId)
    await move()
    await t.advance(2000)
  }

  // In a new session, the player gets the seat and the hand again.
  const { cards } = bob.state.players[ada.memberId]!
  const [again] = await t.join('cards', [{ sub: 'ada' }])
  expect(bob.state.players[again.memberId]).toMatchObject({ bot: false, cards })
  expect(handOf(again)).toHaveLength(cards)
})

test('when all players have left, the room gives their places to the spectators', async () => {
  const { t, seats } = await game()
  const watcher = await watch(t)
  for (const seat of seats) await seat.leave()
  expect([watcher.spectator, watcher.state.phase, watcher.state.order]).toEqual([
    false,
    'waiting',
    [watcher.memberId],
  ])
  await expect(watcher.send('deal')).rejects.toThrow('it takes two')
})

test('a player who joins during a game plays from the next game on, and nobody else gets the place of a player for whom a bot plays', async () => {
  const { t, seats, move } = await game([{ sub: 'ada' }, { sub: 'bob' }, { sub: 'cyd' }])
  const [late] = await t.join('cards', [{ sub: 'late' }])
  await expect(late.request('draw')).rejects.toThrow('you play from the next game on')
  await seats[2]!.leave()
  await expect(t.join('cards', [{ sub: 'eve' }])).rejects.toMatchObject({ code: 'room_full' })
  const [back] = await t.join('cards', [{ sub: 'cyd' }])
  expect(back.state.players[back.memberId]).toMatchObject({ bot: false, cards: 5 })
  seats[2] = back
  while (late.state.phase === 'playing') await move()
  await late.send('deal')
  expect(late.state.order).toHaveLength(4)
  expect(handOf(late)).toHaveLength(5)
})

test('two players of the ranked queue join one table, sooner if they have won about as many games', async () => {
  const t = await testRooms([room, queue])
  const enter = (sub: string, wins: number) => t.queue('cards-ranked', {}, { sub, data: { wins } })
  const [ada, bob] = [await enter('ada', 0), await enter('bob', 30)]
  await t.advance(5000)
  expect([ada.waiting, bob.waiting]).toEqual([2, 2])
  const cleo = await enter('cleo', 31)
  const [first, second] = [await bob.matched, await cleo.matched]
  expect(first.id).toBe(second.id)
  expect(new Set(first.state.order)).toEqual(new Set([first.memberId, second.memberId]))
  await first.send('deal')
  expect(second.state.phase).toBe('playing')
  await ada.cancel()
})

test('after a game the next one starts, which spectators join', async () => {
  const { t, seats, move } = await game()
  const watcher = await watch(t)
  const won: string[] = []
  watcher.on('over', ({ winner }) => won.push(winner))
  while (watcher.state.phase === 'playing') await move()
  const { winner } = watcher.state
  expect(won).toEqual([winner])
  expect(watcher.spectator).toBe(false)
  await seats[1]!.send('deal')
  expect(watcher.state).toMatchObject({ phase: 'playing', winner: null })
  expect(handOf(watcher)).toHaveLength(5)
  expect(watcher.state.players[winner!]?.wins).toBe(1)
})
