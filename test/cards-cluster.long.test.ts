import { pino } from 'pino'
import type { Browser, Page } from 'playwright-core'
import { connect, type Room } from 'roomful/client'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { WebSocket } from 'ws'
import { LocalCluster } from '../deploy/local/local-cluster.ts'
import { type Backend, startBackend } from '../examples/backend/backend.ts'
import { ownersOf } from '../examples/backend/nodes.ts'
import type room from '../examples/cards/room.ts'
import { type Card, fits, newDeck, TURN_MS } from '../examples/cards/rules.ts'
import { canDraw, type Table } from '../examples/cards/table.ts'
import type { Session } from '../examples/ui/login.ts'
import { SeededRandom } from './kit/seeded-random.ts'
import { runtimeOf } from './support/calls.ts'
import { launchChromium } from './support/chromium.ts'

/** Additional time of play with a fault every few moves, seconds. For runs by hand. */
const SECONDS = Number(process.env.CARDS_SECONDS ?? 0)
const WITHIN = { timeout: 180_000, interval: 50 }
const KEY = 'cluster'

let cluster: LocalCluster
let games: Backend
let browser: Browser

beforeAll(async () => {
  const { PATH, HOME, TMPDIR } = process.env
  cluster = await LocalCluster.prepare({
    nodes: 3,
    controls: 1,
    balancer: 'auto',
    advertise: true,
    env: { PATH, HOME, TMPDIR, ...(SECONDS === 0 && { DRAIN_SECONDS: '1' }) },
  })
  const launched = launchChromium()
  await cluster.start()
  const { ports, secrets, addresses } = cluster
  games = await startBackend({
    host: '127.0.0.1',
    port: 0,
    control_url: cluster.controlUrl,
    control_token: secrets.operatorToken,
    ws_url: `ws://127.0.0.1:${ports.websocket}`,
    nodes: { addresses, internal_token: secrets.internalToken },
    log: pino({ level: 'silent' }),
  })
  browser = await launched
})

afterAll(async () => {
  await browser?.close()
  await games?.close()
  cluster?.abandon()
  await cluster?.close()
})

/** A player or a spectator. */
interface Listener {
  readonly name: string
  /** Null: a spectator, without cards. */
  memberId: string | null
  /** Frames that it has received since the last search. */
  readonly frames: Buffer[]
  /** Number of cards in its frames that it may know. It shows that the search finds cards. */
  found: number
}

/** One browser tab. */
interface Tab extends Listener {
  readonly page: Page
}

async function openTab(name: string): Promise<Tab> {
  const page = await (await browser.newContext()).newPage()
  page.setDefaultTimeout(WITHIN.timeout)
  const tab: Tab = { name, memberId: null, frames: [], found: 0, page }
  page.on('websocket', (socket) =>
    socket.on('framereceived', ({ payload }) => void tab.frames.push(Buffer.from(payload))),
  )
  await page.goto(`${games.url}/cards/?room=${KEY}`)
  return tab
}

/** Returns a function that requests a token from the games' backend, always for the same player. */
function login(): () => Promise<Session> {
  let player: object | undefined
  return async () => {
    const response = await fetch(`${games.url}/api/session`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ game: 'cards', player }),
    })
    const session = (await response.json()) as Session & { player: object }
    player = session.player
    return session
  }
}

/** Joins a player with the SDK. */
async function player(name: string): Promise<{ seat: Room<typeof room>; listener: Listener }> {
  const listener: Listener = { name, memberId: null, frames: [], found: 0 }
  class Recorded extends WebSocket {
    constructor(url: string, protocols: string[]) {
      super(url, protocols)
      this.on('message', (data: ArrayBuffer) => void listener.frames.push(Buffer.from(data)))
    }
  }
  const ask = login()
  const { project_id: projectId, token, ws_url: url } = await ask()
  const getToken = async () => (await ask()).token
  const client = await connect(url, { projectId, token, getToken, WebSocket: Recorded })
  const seat = await client.join<typeof room>('cards', { key: KEY })
  listener.memberId = seat.memberId
  return { seat, listener }
}

/** Joins a spectator in JSON. After a lost connection, it starts a new session. */
async function watchInJson(): Promise<Listener> {
  const listener: Listener = { name: 'the spectator in JSON', memberId: null, frames: [], found: 0 }
  const ask = login()
  const dial = async (): Promise<void> => {
    if (!browser.isConnected()) return
    const { project_id, token, ws_url: url } = await ask()
    const socket = new WebSocket(url, 'roomful.v1.json')
    const send = (message: object) => socket.send(JSON.stringify(message))
    socket.on('open', () => {
      send({ t: 'hello', project_id, token, features: ['layers'] })
      send({ t: 'join', request_id: 1, room_type: 'cards', options: { key: KEY } })
    })
    socket.on('message', (data: Buffer) => void listener.frames.push(data))
    socket.on('error', () => undefined)
    socket.on('close', () => void setTimeout(() => dial().catch(() => undefined), 100))
  }
  await dial()
  await vi.waitUntil(() => listener.frames.length > 2, WITHIN)
  return listener
}

/** Returns the texts of a card in frames: plain, and with the escape that JSON allows. */
const written = (card: Card): string[] => [
  card,
  card.replace(/\W/u, (suit) => `\\u${suit.charCodeAt(0).toString(16)}`),
]

/** A game with its players, and the cards that each of them may know. */
class Game {
  readonly tabs: readonly Tab[]
  readonly seats: readonly Room<typeof room>[]
  readonly random = new SeededRandom(Number(process.env.CARDS_SEED ?? 1))
  /** The whole table at the last moment at which all players were up to date. */
  table!: Table
  owner = ''
  readonly count = {
    kills: 0,
    drains: 0,
    reloads: 0,
    frames: 0,
    bytes: 0,
    foreign: 0,
    timedOut: 0,
    moves: 0,
    games: 0,
    requests: 0,
  }
  readonly listeners: readonly Listener[]
  readonly #restarts: Promise<void>[] = []

  private constructor(
    tabs: readonly Tab[],
    seats: readonly Room<typeof room>[],
    others: readonly Listener[],
  ) {
    this.tabs = tabs
    this.seats = seats
    this.listeners = [...tabs, ...others]
  }

  static async begin(): Promise<Game> {
    const tabs = [await openTab('the first tab')]
    await tabs[0]!.page.locator('#seat .player').waitFor()
    tabs.push(await openTab('the second tab'))
    await tabs[1]!.page.locator('#seat .player').waitFor()
    const players = [await player('the first SDK player'), await player('the second SDK player')]
    const seats = players.map(({ seat }) => seat)
    const game = new Game(tabs, seats, [...players.map(({ listener }) => listener), await watchInJson()])
    const { table } = await look()
    for (const [index, tab] of tabs.entries()) tab.memberId = table.order[index]!
    game.table = table
    await game.deal()
    return game
  }

  async deal(): Promise<void> {
    await this.tabs[0]!.page.click('#deal')
    await vi.waitUntil(async () => (await look().catch(() => undefined))?.table.phase === 'playing', WITHIN)
    this.count.games += 1
    await this.caughtUp()
  }

  /** Waits until each tab shows the hand that the owner has. Expects that no frame has a foreign card. */
  async caughtUp(): Promise<void> {
    await vi.waitFor(async () => {
      const { owner, table } = await look()
      for (const { page, memberId, name } of this.tabs) {
        const shown = await page
          .locator('#hand [data-card]')
          .evaluateAll((cards) => cards.map((card) => (card as HTMLElement).dataset.card))
        const words = await page.locator('.pill, .curtain, #verdict').allTextContents()
        expect(shown.sort(), `${name}: ${words.join(', ')}`).toEqual(
          [...(table.hands[memberId!] ?? [])].sort(),
        )
      }
      for (const { status, state } of this.seats)
        if (status === 'joined') expect(state.turn.number).toBe(table.turn.number)
      this.#search(this.table, table)
      Object.assign(this, { owner, table })
    }, WITHIN)
  }

  #search(before: Table, after: Table): void {
    for (const listener of this.listeners) {
      const frames = listener.frames.splice(0)
      const bytes = Buffer.concat(frames)
      const handOf = ({ hands }: Table) => hands[listener.memberId ?? ''] ?? []
      const hand = new Set([...handOf(before), ...handOf(after)])
      const pile = new Set([...before.pile, ...after.pile])
      const found = newDeck().filter((card) => written(card).some((text) => bytes.includes(text)))
      const foreign = found.filter((card) => !hand.has(card) && !pile.has(card))
      const telling = frames.map(String).filter((text) => foreign.some((card) => text.includes(card)))
      const turns = `from turn ${before.turn.number} to ${after.turn.number}`
      expect.soft(foreign, `foreign cards of ${listener.name} ${turns}: ${telling}`).toEqual([])
      this.count.frames += frames.length
      this.count.bytes += bytes.length
      this.count.foreign += foreign.length
      listener.found += found.filter((card) => (listener.memberId ? hand : pile).has(card)).length
    }
  }

  /** Waits until all nodes are ready again. If less than half of the turn is left, waits for the next turn. */
  async ready(): Promise<void> {
    await Promise.all(this.#restarts)
    this.#restarts.length = 0
    await this.caughtUp()
    if (this.table.turn.endsAt - Date.now() < TURN_MS / 2) await this.timeOut()
  }

  /** Kills or drains a node, and then starts it again. */
  async strike(how: 'kill' | 'drain', node = this.owner): Promise<void> {
    const child = cluster.child(node)
    this.count[`${how}s`] += 1
    const ended = how === 'kill' ? child.kill() : child.endWithin(30_000)
    const restarted = ended.then(() => child.start())
    this.#restarts.push(restarted)
    // `ready` reports a failure. If the test has ended before, the failure does not matter.
    restarted.catch(() => undefined)
    if (how === 'kill') await ended
  }

  tabOf(memberId: string): Tab | undefined {
    return this.tabs.find((tab) => tab.memberId === memberId)
  }

  seatOf(memberId: string): Room<typeof room> {
    return this.seats.find((seat) => seat.memberId === memberId)!
  }

  /** The current player draws a card during `event`. Expects one more card, and one answer. */
  async drawDuring(event: () => Promise<unknown>): Promise<void> {
    const { of, number } = this.table.turn
    const { cards } = this.table.players[of]!
    const tab = this.tabOf(of)
    if (tab) await Promise.all([tab.page.click('#deck'), event()])
    else {
      const [{ card }] = await Promise.all([this.seatOf(of).request('draw'), event()])
      expect(this.seatOf(of).state.hands[of]).toContain(card)
    }
    await vi.waitUntil(async () => (await look().catch(() => undefined))?.table.turn.drew, WITHIN)
    await this.caughtUp()
    this.count.requests += 1
    expect(this.table.turn).toMatchObject({ of, number, drew: true })
    expect(this.table.players[of]?.cards).toBe(cards + 1)
    if (tab) expect(await tab.page.locator('.toast.wrong').count()).toBe(0)
  }

  /** The current player plays a card that fits, or passes, during `event`. */
  async move(event: () => Promise<unknown> = async () => undefined): Promise<void> {
    const fitting = () => {
      const { turn, hands, pile, suit } = this.table
      return hands[turn.of]!.find((held) => fits(held, pile.at(-1)!, suit))
    }
    if (!fitting() && !this.table.turn.drew && canDraw(this.table))
      await this.drawDuring(async () => undefined)
    const card = fitting()
    const { turn } = this.table
    const tab = this.tabOf(turn.of)
    const play = async (): Promise<void> => {
      if (!tab) return card ? this.seatOf(turn.of).send('play', { card }) : this.seatOf(turn.of).send('pass')
      if (!card) return tab.page.click('#pass')
      await tab.page.click(`[data-card="${card}"]`)
      if (card.startsWith('8')) await tab.page.getByRole('button', { name: 'hearts', exact: true }).click()
    }
    await Promise.all([play(), event()])
    this.count.moves += 1
    await this.ended(turn.number)
  }

  /** Waits for the end of a turn. Expects that only one turn has ended. */
  async ended(number: number): Promise<void> {
    await vi.waitUntil(async () => {
      const table = (await look().catch(() => undefined))?.table
      return table && (table.turn.number > number || table.phase === 'over')
    }, WITHIN)
    await this.caughtUp()
    if (this.table.phase !== 'over') expect(this.table.turn.number).toBe(number + 1)
  }

  /** The current player does nothing during `event`. Expects that it gets a card when its turn ends. */
  async timeOut(event: () => Promise<unknown> = async () => undefined): Promise<void> {
    const { of, number, drew } = this.table.turn
    const { cards } = this.table.players[of]!
    const timedOut: string[] = []
    const stop = this.seats[0]!.on('timedOut', ({ player }) => void timedOut.push(player))
    await event()
    await this.ended(number)
    stop()
    expect(timedOut).toEqual([of])
    expect(this.table.players[of]?.cards).toBe(cards + (drew ? 0 : 1))
    this.count.timedOut += 1
  }

  async reload(): Promise<void> {
    this.count.reloads += this.tabs.length
    await Promise.all(this.tabs.map(({ page }) => page.reload()))
    await this.caughtUp()
  }
}

/** Returns the room and its owner. Rejects if no node runs the room. */
async function look(): Promise<{ owner: string; table: Table }> {
  const views = await Promise.all(
    cluster.addresses.map(async ({ admin_url: url, node_id: nodeId = '' }) => {
      const runtime = await runtimeOf(url, cluster.secrets.internalToken).catch(() => undefined)
      return { node_id: nodeId, state: 'ready' as const, sessions: 0, rooms: runtime?.rooms ?? [] }
    }),
  )
  const found = [...ownersOf(views).values()].find(({ room }) => room.key === KEY)
  if (!found) throw new Error('no node runs the room')
  return { owner: found.owner, table: found.room.state as unknown as Table }
}

test(
  'players receive no foreign card, a request during a crash has one effect, a reload keeps the hand, and a bot plays once',
  async () => {
    const game = await Game.begin()
    for (const how of ['kill', 'drain'] as const) {
      await game.drawDuring(() => game.strike(how))
      await game.move()
    }
    await game.reload()
    if (SECONDS > 0) await playOn(game, performance.now() + SECONDS * 1000)

    // A bot replaces a player that leaves. A timer makes its moves.
    const seat = game.seats[0]!
    await game.ready()
    while (game.table.turn.of !== seat.memberId) await game.move()
    const { number } = game.table.turn
    await seat.leave()
    await game.strike('kill')
    await game.ended(number + 1)

    const found = Object.fromEntries(game.listeners.map((listener) => [listener.name, listener.found]))
    if (SECONDS > 0) process.stderr.write(`${JSON.stringify({ ...game.count, found })}\n`)
    for (const [name, times] of Object.entries(found)) expect(times, name).toBeGreaterThan(4)
  },
  Math.max(180_000, SECONDS * 2000),
)

async function playOn(game: Game, until: number): Promise<void> {
  const pick = <T>(from: readonly T[]): T => from[Math.floor(game.random.float() * from.length)]!
  while (performance.now() < until) {
    if (game.table.phase === 'over') await game.deal()
    await game.ready()
    if (game.table.phase === 'over') continue
    const node = pick([game.owner, 'node-1', 'node-2', 'node-3'])
    const strike = () => game.strike(pick(['kill', 'kill', 'drain']), node)
    const what = pick(['draw', 'draw', 'move', 'move', 'reload', 'time'])
    if (what === 'draw' && !game.table.turn.drew && canDraw(game.table)) {
      await game.drawDuring(strike)
      await game.move()
    } else if (what === 'reload') await Promise.all([game.reload(), strike()])
    else if (what === 'time') await game.timeOut(strike)
    else if (what === 'move') await game.move(strike)
  }
}
