import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { type Client, connect, type Room, RoomfulError } from 'roomful/client'
import { WebSocket } from 'ws'
import type { ConnectOptions } from '../../../client/index.ts'

/**
 * A player with the SDK for the conformance proxy. As a program: `npm run conformance -- --client ws://127.0.0.1:7350 --exec "npx tsx
 * test/conformance/client/player.ts"`.
 */

/** Expected errors: a card cannot be played, or the session has ended. */
const EXPECTED: ReadonlySet<string> = new Set(['room_logic_refused', 'resume_failed', 'connection_lost'])
const CARD_ACTS = ['deal', 'draw', 'pass'] as const

export class ConformancePlayer {
  readonly client: Client
  readonly counter: Room
  readonly cards: Room
  /** Number of acknowledged increments of the counter. */
  counted = 0
  private acts = 0

  private constructor(client: Client, counter: Room, cards: Room) {
    this.client = client
    this.counter = counter
    this.cards = cards
  }

  /** Joins a counter and a table of cards, which has hidden layers. `tokenUrl` answers with a fresh token. */
  static async join(
    url: string,
    tokenUrl: string,
    options: Pick<ConnectOptions, 'random'> = {},
  ): Promise<ConformancePlayer> {
    const getToken = async () => ((await (await fetch(tokenUrl)).json()) as { token: string }).token
    const Socket = WebSocket as NonNullable<ConnectOptions['WebSocket']>
    const client = await connect(url, { ...options, getToken, WebSocket: Socket })
    const key = 'conformance'
    const [counter, cards] = await Promise.all([
      client.join('counter', { key }),
      client.join('cards', { key }),
    ])
    return new ConformancePlayer(client, counter, cards)
  }

  /** Increments the counter, and plays a card. Resolves when both have an outcome. */
  async act(): Promise<void> {
    const card = CARD_ACTS[this.acts % CARD_ACTS.length]!
    this.acts += 1
    const counts = this.counter.send('inc', { by: 1 }).then(() => {
      this.counted += 1
    })
    const plays = card === 'draw' ? this.cards.request(card) : this.cards.send(card)
    await Promise.all([counts.catch(expected), plays.catch(expected)])
  }
}

function expected(error: unknown): void {
  if (!(error instanceof RoomfulError && EXPECTED.has(error.code))) throw error
}

async function main(): Promise<void> {
  const { ROOMFUL_URL: url = '', ROOMFUL_TOKEN_URL: tokenUrl = '' } = process.env
  const players = await Promise.all(
    ['ada', 'bob', 'cyd'].map((name) => {
      const mine = new URL(tokenUrl)
      mine.searchParams.set('name', name)
      return ConformancePlayer.join(url, mine.href)
    }),
  )
  await Promise.all(
    players.map(async (player) => {
      while (player.client.status !== 'closed') {
        await player.act()
        await sleep(50)
      }
    }),
  )
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) await main()
