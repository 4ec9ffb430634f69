import { byId, create } from '../ui/dom.ts'
import { hueOf, nameOf } from '../ui/identity.ts'
import { type Stage, startGame } from '../ui/stage.ts'
import { Bot } from './bot.ts'
import { Camera } from './camera.ts'
import { Controls } from './controls.ts'
import { Effects } from './effects.ts'
import { Feed } from './feed.ts'
import { Motion, type Point } from './motion.ts'
import { NodesPanel } from './nodes-panel.ts'
import { type Figure, Painter, RADIUS } from './paint.ts'
import type arena from './room.ts'
import { Walker } from './walker.ts'

/** How near someone must be for this page to offer a hit. */
const REACH = 170
/** A click this close to someone means them. */
const AIM = RADIUS + 14
const MOST_BOTS = 12
/** Blows drawn between two frames of the screen. */
const MOST_BLOWS = 6

const distance = (a: Point, b: Point): number => Math.hypot(a.x - b.x, a.y - b.y)

/** The arena as one player sees it: what the server says of the others, smoothed, and this player ahead of its word. */
class ArenaView {
  readonly #stage: Stage<typeof arena>
  readonly #motion = new Motion()
  readonly #effects = new Effects()
  readonly #camera = new Camera()
  readonly #painter: Painter
  readonly #controls: Controls
  readonly #feed = new Feed(byId('feed', HTMLElement))
  readonly #hitButton = byId('hit', HTMLButtonElement)
  readonly #help = byId('help', HTMLElement)
  readonly #facing = new Map<string, number>()
  #walker: Walker | undefined
  /** The member id that the walker is of: a lost session comes back as another member, elsewhere. */
  #walksAs = ''
  #lastMs = performance.now()
  #blowsInFrame = 0

  constructor(stage: Stage<typeof arena>) {
    this.#stage = stage
    const canvas = byId('floor', HTMLCanvasElement)
    this.#painter = new Painter(canvas, this.#camera)
    this.#controls = new Controls(canvas, this.#hitButton, {
      point: (at, dragging) => this.#pointed(at, dragging),
      hit: () => this.#hitNearest(),
    })
    stage.room.onStateChange((state, previous) => this.#changed(state.players, previous.players))
    stage.room.on('hit', (blow) => this.#blown(blow))
    this.#changed(stage.room.state.players, {})
    byId('stage', HTMLElement).focus({ preventScroll: true })
    requestAnimationFrame((now) => this.#frame(now))
  }

  get #me(): string {
    return this.#stage.room.memberId
  }

  #name(id: string): string {
    if (id === this.#me) return 'You'
    return nameOf(id, this.#stage.room.members.find((member) => member.id === id)?.sub)
  }

  #changed(
    players: Readonly<Record<string, Readonly<Point>>>,
    previous: Readonly<Record<string, unknown>>,
  ): void {
    const now = performance.now()
    for (const [id, player] of Object.entries(players)) {
      this.#motion.see(id, player, now)
      if (!Object.hasOwn(previous, id)) this.#effects.arrival(player, hueOf(id))
    }
    this.#motion.keep(players)
    const mine = players[this.#me]
    if (mine && this.#walksAs !== this.#me) {
      this.#walksAs = this.#me
      this.#walker = new Walker(mine)
      this.#camera.jump(mine)
    }
  }

  /** The event comes after the patch of its flush: a player at 0 stands in its new place already. */
  #blown({ by, target, hp }: { by: string; target: string; hp: number }): void {
    const now = performance.now()
    const from = this.#placeOf(by, now)
    const to = this.#placeOf(target, now)
    // A resume brings all the blows that were missed at once: a few of them tell enough.
    const drawn = ++this.#blowsInFrame <= MOST_BLOWS
    if (from && to && drawn) this.#effects.blow(from, to, target, hueOf(by), now)
    if (hp > 0) return
    if (to && drawn) this.#effects.knockout(to, hueOf(target))
    const victim = target === this.#me ? 'you' : this.#name(target)
    this.#feed.add(`${this.#name(by)} knocked out ${victim}`)
    const mine = this.#stage.room.state.players[this.#me]
    if (target !== this.#me || !mine || !this.#walker) return
    this.#walker.putAt(mine)
    this.#effects.arrival(mine, hueOf(this.#me))
    // Moves sent before the news arrived would drag the player back: this one comes after them.
    void this.#stage.room.send('move', { x: mine.x, y: mine.y }).catch(() => undefined)
  }

  #placeOf(id: string, now: number): Point | undefined {
    return id === this.#me ? this.#walker?.place : this.#motion.at(id, now)
  }

  /** The nearest player within reach. */
  #nearest(now: number): string | undefined {
    const here = this.#walker?.place
    if (!here) return undefined
    let best: { id: string; far: number } | undefined
    for (const id of Object.keys(this.#stage.room.state.players)) {
      const place = id === this.#me ? undefined : this.#motion.at(id, now)
      const far = place ? distance(here, place) : REACH
      if (far < (best?.far ?? REACH)) best = { id, far }
    }
    return best?.id
  }

  #hitNearest(): void {
    const target = this.#nearest(performance.now())
    if (target) this.#hit(target)
  }

  #hit(target: string): void {
    this.#help.classList.add('done')
    void this.#stage.room.send('hit', { target }).catch((error: unknown) => {
      this.#stage.toasts.refuse(error)
    })
  }

  #pointed(at: Point, dragging: boolean): void {
    const here = this.#walker?.place
    if (!here) return
    const now = performance.now()
    const spot = this.#camera.toFloor(at)
    const aimed = Object.keys(this.#stage.room.state.players).find((id) => {
      const place = id === this.#me ? undefined : this.#motion.at(id, now)
      return place && distance(place, spot) < AIM && distance(place, here) < REACH
    })
    if (aimed && !dragging) this.#hit(aimed)
    else this.#walker?.walkTo(spot)
    this.#help.classList.add('done')
  }

  #frame(now: number): void {
    const seconds = Math.min(0.1, Math.max(0, (now - this.#lastMs) / 1000))
    this.#lastMs = now
    this.#blowsInFrame = 0
    if (this.#walker) this.#walk(this.#walker, seconds, now)
    this.#effects.step(seconds)
    const target = this.#nearest(now)
    this.#hitButton.disabled = target === undefined
    this.#painter.paint({
      figures: this.#figures(target, now),
      effects: this.#effects.all,
      goal: this.#walker?.goal,
      nowMs: now,
    })
    requestAnimationFrame((next) => this.#frame(next))
  }

  #walk(walker: Walker, seconds: number, now: number): void {
    const direction = this.#controls.direction()
    if (direction.x !== 0 || direction.y !== 0) this.#help.classList.add('done')
    walker.step(direction, seconds, now)
    const truth = this.#stage.room.state.players[this.#me]
    if (truth) walker.believe(truth, seconds, now)
    this.#camera.follow(walker.place, seconds)
    // Only the newest position matters: a lost one is not worth resending.
    const report = walker.report(now)
    if (report) void this.#stage.room.send('move', report, { reliable: false })
  }

  #figures(target: string | undefined, now: number): Figure[] {
    const figures: Figure[] = []
    const away = new Set(this.#stage.room.members.flatMap(({ id, connected }) => (connected ? [] : id)))
    for (const [id, player] of Object.entries(this.#stage.room.state.players)) {
      const at = this.#placeOf(id, now)
      if (!at) continue
      const heading = id === this.#me ? undefined : this.#heading(id, now)
      if (heading !== undefined) this.#facing.set(id, heading)
      const walking = id === this.#me ? (this.#walker?.isWalking(now) ?? false) : heading !== undefined
      figures.push({
        name: this.#name(id),
        at,
        hp: player.hp,
        away: away.has(id),
        hue: hueOf(id),
        facing: id === this.#me ? (this.#walker?.facing ?? 0) : (this.#facing.get(id) ?? Math.PI / 2),
        flash: this.#effects.flash(id, now),
        walking,
        mine: id === this.#me,
        targeted: id === target,
      })
    }
    return figures
  }

  /** The direction that player `id` is drawn walking in, while it walks. */
  #heading(id: string, now: number): number | undefined {
    const before = this.#motion.at(id, now - 30)
    const after = this.#motion.at(id, now)
    if (!before || !after || distance(before, after) < 0.5) return undefined
    return Math.atan2(after.y - before.y, after.x - before.x)
  }
}

/** Lets people who are alone have company: bots that live in this tab. */
function offerBots({ key, toasts }: Stage<typeof arena>): void {
  const bots: Bot[] = []
  const more = create('button', { type: 'button', text: 'Add a bot' })
  const fewer = create('button', { type: 'button', text: 'Remove bots', hidden: '' })
  more.addEventListener('click', async () => {
    more.disabled = true
    await Bot.join(key, `Bot ${bots.length + 1}`).then(
      (bot) => bots.push(bot),
      (error: unknown) => toasts.refuse(error),
    )
    more.disabled = bots.length >= MOST_BOTS
    fewer.hidden = bots.length === 0
  })
  fewer.addEventListener('click', () => {
    for (const bot of bots.splice(0)) bot.leave()
    more.disabled = false
    fewer.hidden = true
  })
  byId('dock', HTMLElement).append(more, fewer)
}

void startGame<typeof arena>('arena', (stage) => {
  new ArenaView(stage)
  offerBots(stage)
  new NodesPanel(byId('nodes', HTMLDetailsElement), stage.room)
})
