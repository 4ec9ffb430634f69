import { symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeAll, expect, it, onTestFinished, vi } from 'vitest'
import { type Client, connect, type Room } from '../client/index.ts'
import type { RoomDefinition } from '../dataplane/index.ts'
import type { Json, JsonObject } from '../shared/json.ts'
import type { TypedRoom, UntypedRoom } from '../shared/room-types.ts'
import { type Player, type TestRooms, testRooms } from './kit/index.ts'
import { startService } from './support/cluster.ts'
import { type Block, blocksOf, ROOT } from './support/pages.ts'
import { newFolder } from './support/run-folder.ts'

type AnyRoom = Room<TypedRoom<UntypedRoom>>
interface Lobby {
  playNow(): Promise<AnyRoom>
  join(key: string): Promise<AnyRoom>
  createPrivate(): Promise<AnyRoom>
  joinPrivate(code: string): Promise<AnyRoom>
}
interface Gallery {
  watch(key: string): Promise<AnyRoom>
  watchPrivate(code: string): Promise<AnyRoom>
}
type State = { readonly [name: string]: Json }

/** The matchmaking page has the recipe of a ranked game. */
const blocks = ['docs/recipes.md', 'docs/matchmaking.md'].flatMap((page) => blocksOf(page, 'ts'))
const rooms = new Map<string, RoomDefinition>()
let folder = ''

beforeAll(async () => {
  folder = await newFolder()
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'), 'junction')
  for (const block of blocks) {
    const file = fileOf(block)
    await writeFile(file, block.code)
    if (!isRoom(block)) continue
    const { default: room }: { default: RoomDefinition } = await import(file)
    rooms.set(room.type, room)
  }
}, 180_000)

const games: TestRooms[] = []
afterEach(async () => {
  vi.useRealTimers()
  for (const game of games.splice(0)) await game.close()
})

const isRoom = ({ code }: Block): boolean => /defineRoom|defineQueue/.test(code)

const fileOf = (block: Block): string => join(folder, `recipe-${blocks.indexOf(block)}.ts`)

/** Starts rooms of a recipe. `join` joins a player with a client. */
async function play(type: string, ...others: string[]) {
  const used = [type, ...others].map((name) => rooms.get(name)!)
  const t = (await testRooms(used as never)) as unknown as TestRooms
  games.push(t)
  const join = async (player: string | Player, options: object = {}): Promise<AnyRoom> => {
    const players = [typeof player === 'string' ? { sub: player } : player]
    const [room] = await t.join(type as never, players, options as never)
    return room as unknown as AnyRoom
  }
  return { t, join }
}

/** Imports the page of a recipe. */
const pageOf = <T>(heading: string): Promise<T> =>
  import(fileOf(blocks.find((block) => block.heading === heading && !isRoom(block))!))

const stateOf = (room: AnyRoom) => room.state as State
const refused = (message: string) => ({ code: 'room_logic_refused', message })

it('has rooms of at most 40 lines', () => {
  expect(rooms.size).toBe(8)
  for (const { code, heading } of blocks)
    expect.soft(code.trimEnd().split('\n').length, heading).toBeLessThanOrEqual(40)
})

it('lobby and private rooms: takes at most 15 lines of room and page', () => {
  const [room, page] = blocks.filter(({ heading }) => heading === 'Lobby and private rooms')
  const finds = room!.code.match(
    /^ {2}(?:(?:maxPlayers|options|codes): .*|listing: \{\n(?: {4}.*\n)*? {2}\},)$/gm,
  )!
  const lines = `${finds.join('\n')}\n${page!.code.replaceAll(/^(?:import|\/\*\*).*\n/gm, '')}`
    .split('\n')
    .filter((line) => line !== '')
  expect([finds.length, lines.length]).toEqual([4, 15])
})

/** A player of the recipes "Lobby" and "Spectators", in one service. */
interface Guest {
  readonly ways: Lobby
  readonly gallery: Gallery
  /** Resolves when the list of games that wait for players is this one. */
  readonly shows: (games: readonly object[]) => Promise<unknown>
  /** The same with the running games. */
  readonly runs: (games: readonly object[]) => Promise<unknown>
}

/** Starts a service for these recipes. Returns a function that connects a player. */
async function doodles(): Promise<() => Promise<Guest>> {
  type Show = (games: readonly object[]) => void
  const { lobby } = await pageOf<{ lobby: (client: Client, show: Show) => Lobby }>('Lobby and private rooms')
  const { gallery } = await pageOf<{ gallery: (client: Client, show: Show) => Gallery }>('Spectators')
  const service = await startService({ rooms: [rooms.get('doodle')!] })
  onTestFinished(() => service.close())
  const { projectId } = await service.login()
  let players = 0
  return async () => {
    const claims = { project_id: projectId, sub: `player-${++players}` }
    const { token = '' } = await service.call('POST', '/tokens', claims)
    const client = await connect(service.wsUrl, { projectId, token })
    onTestFinished(() => client.close())
    let waiting: readonly object[] | undefined
    let running: readonly object[] | undefined
    const ways = lobby(client, (games) => {
      waiting = games
    })
    const watching = gallery(client, (games) => {
      running = games
    })
    const wait = (of: () => readonly object[] | undefined) => (wanted: readonly object[]) =>
      vi.waitFor(() => expect(of()).toMatchObject(wanted), { timeout: 180_000 })
    return {
      ways,
      gallery: watching,
      shows: wait(() => waiting),
      runs: wait(() => running),
    }
  }
}

it('lobby and private rooms: lists open games until they start, and friends join by a code', async () => {
  const enter = await doodles()
  const [ann, bob, eve] = [await enter(), await enter(), await enter()]
  await eve.shows([])
  const friends = await ann.ways.createPrivate()
  const game = await bob.ways.playNow()
  expect(game.id).not.toBe(friends.id)
  await eve.shows([{ key: game.key, players: 1, data: { started: false } }])
  await expect(bob.ways.joinPrivate('no-code')).rejects.toMatchObject({ code: 'room_not_found' })
  expect((await bob.ways.joinPrivate(friends.code!.toLowerCase())).id).toBe(friends.id)
  const seat = await eve.ways.join(game.key)
  await Promise.all([game, seat].map((room) => room.send('ready')))
  await eve.shows([])
  await ann.runs([{ key: game.key, players: 2, data: { started: true } }])
})

it('lobby and spectators together: ten players fill three rooms, and a spectator takes a free place', async () => {
  const { follow } = await pageOf<{
    follow(room: AnyRoom, told: (text: string, canSit: boolean) => void): void
  }>('Spectators')
  const enter = await doodles()
  const guests = await Promise.all(Array.from({ length: 10 }, () => enter()))
  const seats = await Promise.all(guests.map(({ ways }) => ways.playNow()))
  expect(new Set(seats.map(({ id }) => id)).size).toBe(3)
  const { id } = seats.find(({ players }) => players.length === 4)!
  const game = seats.filter((seat) => seat.id === id)
  await Promise.all(game.map((room) => room.send('ready')))
  const [eve, kim] = [await enter(), await enter()]
  await eve.runs([{ key: game[0]!.key, players: 4, maxPlayers: 4 }])
  const watcher = await eve.gallery.watch(game[0]!.key)
  const other = await kim.gallery.watchPrivate(game[0]!.code!)
  let told: unknown
  follow(watcher, (...what) => {
    told = what
  })
  const tells = (wanted: unknown) => vi.waitFor(() => expect(told).toEqual(wanted), { timeout: 180_000 })
  await tells(['you watch, 4 players, 2 spectators', false])
  await expect(watcher.send('ready')).rejects.toMatchObject({ code: 'not_a_player' })
  await expect(watcher.send('sit')).rejects.toMatchObject(refused('no place is free'))
  await game[3]!.leave()
  await tells(['you watch, 3 players, 2 spectators', true])
  await watcher.send('sit')
  await tells(['you play, 4 players, 1 spectators', false])
  await expect(other.send('sit')).rejects.toMatchObject(refused('no place is free'))
})

it('lobby: starts when all are ready, and a disconnected player is not', async () => {
  const { t, join } = await play('doodle')
  const [ann, bob, eve] = [await join('ann'), await join('bob'), await join('eve')]
  await ann.send('ready')
  await bob.send('ready')
  await t.drop(ann)
  await eve.send('ready')
  expect(stateOf(eve).started).toBe(false)
  await t.killOwner(bob)
  await t.reconnect(ann)
  await ann.send('ready')
  expect(stateOf(ann).started).toBe(true)
})

it('lobby: starts when the only player who is not ready leaves', async () => {
  const { t, join } = await play('doodle')
  const [ann, bob, eve] = [await join('ann'), await join('bob'), await join('eve')]
  await ann.send('ready')
  await bob.send('ready')
  await eve.leave()
  await t.advance(100)
  expect(stateOf(ann).started).toBe(true)
})

it('host and kick: the host kicks and bans, and another member becomes host when it leaves', async () => {
  const { t, join } = await play('hosted')
  const [ann, bob, eve] = [await join('ann'), await join('bob'), await join('eve')]
  await expect(bob.send('kick', { id: eve.memberId, ban: true })).rejects.toMatchObject(
    refused('only the host may kick'),
  )
  await ann.send('kick', { id: eve.memberId, ban: true })
  await t.killOwner(ann)
  expect(eve.status).toBe('left')
  await expect(join('eve')).rejects.toMatchObject({ code: 'banned', message: 'the host has removed you' })
  await ann.leave()
  await bob.send('unban', 'eve')
  const back = await join('eve')
  expect(stateOf(back)).toEqual({ host: bob.memberId, banned: [] })
})

it('rematch: starts when both players want it, also after the death of the owner', async () => {
  const { t, join } = await play('rematch')
  const [ann, bob] = [await join('ann'), await join('bob')]
  await expect(ann.send('again', null)).rejects.toMatchObject(refused('the round is not over'))
  for (let i = 0; i < 3; i++) await ann.send('score', null)
  expect(stateOf(ann).winner).toBe(ann.memberId)
  await ann.send('again', null)
  await t.killOwner(ann)
  await bob.send('again', null)
  expect(stateOf(bob)).toEqual({ round: 2, points: {}, winner: '', again: [] })
})

it('ranked: matches by the rating of the token, a suspended player harms nobody, and a match without the other player ends', async () => {
  const { t, join } = await play('match', 'ranked')
  const enter = (sub: string, data?: JsonObject) =>
    t.queue('ranked', { mode: 'fast' } as never, { sub, ...(data && { data }) })
  await expect((await enter('new')).matched).rejects.toMatchObject({
    code: 'ticket_refused',
    message: 'play a game first',
  })
  const ada = await enter('ada', { elo: 1200 })
  const strong = await enter('mallory', { elo: 2900 })
  const suspended = await enter('eve', { elo: 1210, suspended: true })
  await expect(suspended.matched).rejects.toMatchObject({ code: 'join_refused' })
  await t.advance(3000)
  const bob = await enter('bob', { elo: 1190 })
  const room = (await ada.matched) as AnyRoom
  expect((await bob.matched).id).toBe(room.id)
  expect(stateOf(room)).toEqual({ map: 'desert', started: true })
  const ended = expect(strong.matched).rejects.toMatchObject({ code: 'cancelled' })
  await strong.cancel()
  await ended
  const alone = await join('alone')
  await t.advance(11_000)
  expect(alone.status).toBe('left')
})

it('chat: limits the rate, and mutes a player, also after it joins again', async () => {
  const { t, join } = await play('chat')
  const ann = await join({ sub: 'ann', data: { moderator: true } })
  let bob = await join('bob')
  for (let i = 0; i < 5; i++) await bob.send('say', ` line ${i} `)
  await expect(bob.send('say', 'too fast')).rejects.toMatchObject({ code: 'rate_limited' })
  await expect(bob.send('mute', { player: 'ann', seconds: 9 })).rejects.toMatchObject(
    refused('only moderators may mute'),
  )
  await ann.send('mute', { player: 'bob', seconds: 60 })
  await t.killOwner(ann)
  await bob.leave()
  bob = await join('bob')
  await expect(bob.send('say', 'still here')).rejects.toMatchObject(refused('you are muted'))
  await t.advance(60_000)
  await bob.send('say', 'sorry')
  expect(stateOf(bob).lines).toMatchObject({ 0: { from: 'bob', text: 'line 0' }, 5: { text: 'sorry' } })
})

it('countdown: the page shows whole seconds, down to 0', async () => {
  const { secondsLeft } = await pageOf<{ secondsLeft(state: object, now: number): number }>('Countdown')
  const shown = [0, 1000, 29_001, 30_000, 31_000].map((now) => secondsLeft({ endsAt: 30_000 }, now))
  expect(shown).toEqual([30, 29, 1, 0, 0])
})

it('reconnect from another device: continues with the seat, and the older device shows a message', async () => {
  const { tellWhyOver } = await pageOf<{ tellWhyOver(room: AnyRoom, show: (text: string) => void): void }>(
    'Reconnect from another device',
  )
  const { t, join } = await play('journey')
  const phone = await join('ann')
  const shown: string[] = []
  tellWhyOver(phone, (text) => shown.push(text))
  await phone.send('step', null)
  const laptop = await join('ann')
  await t.killOwner(laptop)
  await laptop.send('step', null)
  expect(stateOf(laptop)).toEqual({ steps: { [phone.memberId]: 2 } })
  expect(shown).toEqual(['You are playing on another device.'])
})

it('drawing: sends the strokes 20 times a second, and a new member sees them', async () => {
  const { pen } = await pageOf<{ pen(room: AnyRoom): (x: number, y: number) => void }>('Drawing')
  const { t, join } = await play('drawing')
  const ann = await join('ann')
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  const draw = pen(ann)
  for (let x = 1; x <= 4; x++) {
    draw(x, 0)
    if (x % 2 === 0) vi.advanceTimersByTime(50)
  }
  await t.advance(200)
  const bob = await join('bob')
  const strokes = [
    [
      [1, 0],
      [2, 0],
    ],
    [
      [2, 0],
      [3, 0],
      [4, 0],
    ],
  ]
  expect(stateOf(bob)).toEqual({ strokes: strokes.map((points) => ({ by: 'ann', points })) })
  await expect(bob.send('stroke', [[-1, 0]])).rejects.toMatchObject({ code: 'invalid_payload' })
})
