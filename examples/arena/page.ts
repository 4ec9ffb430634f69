import type { Client } from 'roomful/client'
import { type Interpolation, interpolate } from 'roomful/client/motion'
import { byId, create } from '../ui/dom.ts'
import { coloursOf, nameOf } from '../ui/identity.ts'
import type { Lobby } from '../ui/lobby.ts'
import { nameOfRoom, type Stage, startGame } from '../ui/stage.ts'
import { Bot } from './bot.ts'
import { Camera } from './camera.ts'
import { Controls } from './controls.ts'
import { Effects } from './effects.ts'
import type { Point } from './move.ts'
import { NodesPanel } from './nodes-panel.ts'
import { type Figure, Painter, RADIUS } from './paint.ts'
import type arena from './room.ts'
import type { Player } from './room.ts'
import { LEAP, predictMe, Walker } from './walker.ts'

/** Reach of a hit, in units of the floor. */
const REACH = 170
/** A click within this distance of a player targets that player. */
const AIM = RADIUS + 14
const MOST_BOTS = 12
/** Bots that play with the first player of an arena. */
const FIRST_BOTS = 2
/** Maximum number of hits drawn per frame. */
const MOST_BLOWS = 6

const distance = (a: Point, b: Point): number => Math.hypot(a.x - b.x, a.y - b.y)

const SHOWN_MS = 4500
const FADE_MS = 700
/** Knockouts that are shown together. */
const MOST_SHOWN = 4

/** List of the latest knockouts, also for screen readers. */
class Feed {
  readonly #list: HTMLElement

  constructor(list: HTMLElement) {
    this.#list = list
  }

  add(text: string): void {
    const line = create('li', { text })
    this.#list.append(line)
    while (this.#list.children.length > MOST_SHOWN) this.#list.firstChild?.remove()
    setTimeout(() => line.classList.add('gone'), SHOWN_MS)
    setTimeout(() => line.remove(), SHOWN_MS + FADE_MS)
  }
}

/** The arena as one player sees it: interpolated other players, and the predicted own player. */
class ArenaView {
  readonly #stage: Stage<typeof arena>
  readonly #me: ReturnType<typeof predictMe>
  readonly #walker: Walker
  readonly #others: Interpolation<typeof arena, Readonly<Player>>
  /** Positions of all players in this frame. */
  #places = new Map<string, Readonly<Point>>()
  readonly #effects = new Effects()
  readonly #camera = new Camera()
  readonly #canvas = byId('floor', HTMLCanvasElement)
  readonly #painter: Painter
  readonly #controls: Controls
  readonly #feed = new Feed(byId('feed', HTMLElement))
  readonly #hitButton = byId('hit', HTMLButtonElement)
  readonly #help = byId('help', HTMLElement)
  readonly #facing = new Map<string, number>()
  readonly #walking = new Set<string>()
  #colours: ReadonlyMap<string, string> = new Map()
  /** Member id that the camera follows. If the page was offline for too long, the player has joined again with another id. */
  #follows = ''
  #lastMs = performance.now()
  #blowsInFrame = 0

  constructor(stage: Stage<typeof arena>) {
    this.#stage = stage
    this.#me = predictMe(stage.room)
    this.#walker = new Walker(this.#me)
    this.#others = interpolate(stage.room, {
      select: (state) => state.players,
      fields: ['x', 'y'],
      snap: LEAP,
    })
    this.#painter = new Painter(this.#canvas, this.#camera)
    this.#controls = new Controls(this.#canvas, this.#hitButton, {
      point: (at, dragging) => this.#pointed(at, dragging),
      hit: () => this.#hitNearest(),
    })
    stage.room.onStateChange((state, previous) => this.#changed(state.players, previous.players))
    stage.room.on('hit', (blow) => this.#blown(blow))
    stage.room.onMembersChange(() => this.#recolour())
    this.#recolour()
    this.#changed(stage.room.state.players, {})
    byId('stage', HTMLElement).focus({ preventScroll: true })
    requestAnimationFrame((now) => this.#frame(now))
  }

  get #id(): string {
    return this.#stage.room.memberId
  }

  #name(id: string): string {
    if (id === this.#id) return 'You'
    return nameOf(id, this.#stage.room.members.find((member) => member.id === id)?.sub)
  }

  #recolour(): void {
    this.#colours = coloursOf(this.#stage.room.members.map(({ id }) => id))
  }

  #colour(id: string): string {
    return this.#colours.get(id) ?? 'white'
  }

  #changed(
    players: Readonly<Record<string, Readonly<Point>>>,
    previous: Readonly<Record<string, unknown>>,
  ): void {
    for (const [id, player] of Object.entries(players))
      if (!Object.hasOwn(previous, id)) this.#effects.arrival(player, this.#colour(id))
    const mine = players[this.#id]
    if (mine && this.#follows !== this.#id) {
      this.#follows = this.#id
      this.#camera.jump(mine)
      // The hint must not cover the player, so it is in the other half of the field.
      this.#help.classList.toggle('high', this.#camera.toScreen(mine).y > this.#canvas.clientHeight / 2)
    }
  }

  /** The event arrives after the change of the state. A player with 0 hp in the event already has a new position in the state. */
  #blown({ by, target, hp }: { by: string; target: string; hp: number }): void {
    const now = performance.now()
    const from = this.#places.get(by)
    const to = this.#places.get(target)
    // After a reconnect, all missed hits arrive together. Draw only a few.
    const drawn = ++this.#blowsInFrame <= MOST_BLOWS
    if (from && to && drawn) this.#effects.blow(from, to, target, this.#colour(by), now)
    if (hp > 0) return
    if (to && drawn) this.#effects.knockout(to, this.#colour(target))
    const victim = target === this.#id ? 'you' : this.#name(target)
    this.#feed.add(`${this.#name(by)} knocked out ${victim}`)
    const mine = this.#stage.room.state.players[this.#id]
    if (target !== this.#id || !mine) return
    // The room may still receive moves from before the knockout, which move the player back. This move corrects them.
    this.#walker.putAt(mine, now)
    this.#effects.arrival(mine, this.#colour(target))
  }

  /** Returns the nearest player within reach. */
  #nearest(): string | undefined {
    const here = this.#places.get(this.#id)
    if (!here) return undefined
    let best: { id: string; far: number } | undefined
    for (const [id, place] of this.#places) {
      const far = id === this.#id ? REACH : distance(here, place)
      if (far < (best?.far ?? REACH)) best = { id, far }
    }
    return best?.id
  }

  #hitNearest(): void {
    const target = this.#nearest()
    if (target) this.#hit(target)
  }

  #hit(target: string): void {
    this.#help.classList.add('done')
    void this.#stage.room.send('hit', { target }).catch((error: unknown) => {
      this.#stage.toasts.refuse(error)
    })
  }

  #pointed(at: Point, dragging: boolean): void {
    const here = this.#places.get(this.#id)
    if (!here) return
    const spot = this.#camera.toFloor(at)
    const aimed = [...this.#places].find(
      ([id, place]) => id !== this.#id && distance(place, spot) < AIM && distance(place, here) < REACH,
    )
    if (aimed && !dragging) this.#hit(aimed[0])
    else this.#walker.walkTo(spot)
    this.#help.classList.add('done')
  }

  #frame(now: number): void {
    const seconds = Math.min(0.1, Math.max(0, (now - this.#lastMs) / 1000))
    this.#lastMs = now
    this.#blowsInFrame = 0
    this.#move(seconds, now)
    this.#effects.step(seconds)
    const target = this.#nearest()
    this.#hitButton.disabled = target === undefined
    this.#painter.paint({
      figures: this.#figures(target, now),
      effects: this.#effects.all,
      goal: this.#walker.goal,
      nowMs: now,
    })
    requestAnimationFrame((next) => this.#frame(next))
  }

  /** Computes all positions for this frame. */
  #move(seconds: number, now: number): void {
    const direction = this.#controls.direction()
    if (direction.x !== 0 || direction.y !== 0) this.#help.classList.add('done')
    this.#walker.step(direction, seconds, now)
    const before = this.#places
    const mine = this.#me.at()
    this.#places = new Map(mine && [[this.#id, mine]])
    if (mine) this.#camera.follow(mine, seconds)
    this.#walking.clear()
    for (const [id, { x, y }] of this.#others.at()) {
      if (id === this.#id || !Object.hasOwn(this.#stage.room.state.players, id)) continue
      const from = before.get(id) ?? { x, y }
      this.#places.set(id, { x, y })
      if (x === from.x && y === from.y) continue
      this.#walking.add(id)
      this.#facing.set(id, Math.atan2(y - from.y, x - from.x))
    }
    if (this.#walker.isWalking(now)) this.#walking.add(this.#id)
    this.#facing.set(this.#id, this.#walker.facing)
  }

  #figures(target: string | undefined, now: number): Figure[] {
    const { members, state } = this.#stage.room
    const away = new Set(members.flatMap(({ id, connected }) => (connected ? [] : id)))
    return [...this.#places].map(([id, at]) => ({
      name: this.#name(id),
      at,
      hp: state.players[id]?.hp ?? 0,
      away: away.has(id),
      colour: this.#colour(id),
      facing: this.#facing.get(id) ?? Math.PI / 2,
      flash: this.#effects.flash(id, now),
      walking: this.#walking.has(id),
      mine: id === this.#id,
      targeted: id === target,
    }))
  }
}

/** Buttons that add and remove bots, which run in this tab. The first player of an arena starts with bots. */
async function offerBots({ key, room, toasts }: Stage<typeof arena>): Promise<void> {
  const bots: Bot[] = []
  const more = create('button', { type: 'button', text: 'Add a bot' })
  const fewer = create('button', { type: 'button', text: 'Remove bots', hidden: '' })
  const add = async () => {
    more.disabled = true
    await Bot.join(key, `Bot ${bots.length + 1}`).then(
      (bot) => bots.push(bot),
      (error: unknown) => toasts.refuse(error),
    )
    more.disabled = bots.length >= MOST_BOTS
    fewer.hidden = bots.length === 0
  }
  more.addEventListener('click', add)
  fewer.addEventListener('click', () => {
    for (const bot of bots.splice(0)) bot.leave()
    more.disabled = false
    fewer.hidden = true
  })
  byId('dock', HTMLElement).append(more, fewer)
  const others = room.members.filter(({ id, connected }) => connected && id !== room.memberId)
  if (others.length === 0) for (let bot = 0; bot < FIRST_BOTS; bot++) await add()
}

const playNow = (client: Client) => client.joinOrCreate<typeof arena>('arena')

/** "Play now", and a live list of the arenas that have a free place. */
function findArena(lobby: Lobby<typeof arena>, client: Client): void {
  const note = 'In the fullest arena that has a free place.'
  lobby.offer('Play now', note, () => playNow(client))
  const show = lobby.list('Open arenas', 'No arena is open. “Play now” opens one.')
  const stop = client.watchRooms<typeof arena>(
    'arena',
    {},
    (rooms) =>
      show(
        rooms.map(({ key, players, maxPlayers, data }) => ({
          key,
          name: nameOfRoom(key),
          facts: [`${data.wounded} wounded`, `${players} of ${maxPlayers} players`],
          join: () => client.join<typeof arena>('arena', { key }, { create: false }),
        })),
      ),
    lobby.refuse,
  )
  void lobby.joined.then(stop)
}

void startGame<typeof arena>(
  'arena',
  (stage) => {
    new ArenaView(stage)
    void offerBots(stage)
    new NodesPanel(byId('nodes', HTMLDetailsElement), stage.room)
  },
  { title: 'Arena', offer: findArena, enter: playNow },
)
