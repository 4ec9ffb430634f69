import type { Camera } from './camera.ts'
import type { Effect } from './effects.ts'
import type { Point } from './move.ts'

const SIDE = 1000
/** Radius of a player, in units of the floor. */
export const RADIUS = 25
const TILE = 100
const FULL_HP = 100
/** With more players, the names are smaller, and only wounded players show their health. */
const CROWD = 16
/** Middle and first angle of the four corner arcs. */
const CORNERS = [
  [40, 40, 0],
  [SIDE - 40, 40, Math.PI / 2],
  [SIDE - 40, SIDE - 40, Math.PI],
  [40, SIDE - 40, -Math.PI / 2],
] as const

/** A player in the current frame. */
export interface Figure {
  name: string
  at: Point
  hp: number
  /** True while the player is disconnected. */
  away: boolean
  colour: string
  /** Radians. */
  facing: number
  /** Brightness of the flash after a hit, 0 to 1. */
  flash: number
  walking: boolean
  mine: boolean
  /** True for the player that a hit would target now. */
  targeted: boolean
}

/** One frame of the arena. */
interface Scene {
  figures: readonly Figure[]
  effects: readonly Effect[]
  goal: Readonly<Point> | undefined
  nowMs: number
}

interface Colours {
  beyond: string
  floor: string
  tile: string
  mark: string
  wall: string
  text: string
  halo: string
  accent: string
}

function coloursOfPage(): Colours {
  const style = getComputedStyle(document.documentElement)
  const colour = (name: string) => style.getPropertyValue(name).trim()
  return {
    beyond: colour('--void'),
    floor: colour('--floor'),
    tile: colour('--floor-2'),
    mark: colour('--mark'),
    wall: colour('--wall'),
    text: colour('--text'),
    halo: colour('--floor'),
    accent: colour('--accent'),
  }
}

/** Draws the arena on a canvas that fills its box, sharp on every screen and in the page's own colours. */
export class Painter {
  readonly #canvas: HTMLCanvasElement
  readonly #paper: CanvasRenderingContext2D
  readonly #camera: Camera
  #colours = coloursOfPage()
  #ratio = 1

  constructor(canvas: HTMLCanvasElement, camera: Camera) {
    const paper = canvas.getContext('2d', { alpha: false })
    if (!paper) throw new Error('this browser does not draw on canvases')
    this.#canvas = canvas
    this.#paper = paper
    this.#camera = camera
    const resize = () => this.#resize()
    new ResizeObserver(resize).observe(canvas)
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.#colours = coloursOfPage()
    })
    resize()
  }

  paint(scene: Scene): void {
    const paper = this.#paper
    paper.setTransform(1, 0, 0, 1, 0, 0)
    paper.fillStyle = this.#colours.beyond
    paper.fillRect(0, 0, this.#canvas.width, this.#canvas.height)

    const corner = this.#camera.toScreen({ x: 0, y: 0 })
    const zoom = this.#camera.scale * this.#ratio
    paper.setTransform(zoom, 0, 0, zoom, corner.x * this.#ratio, corner.y * this.#ratio)
    this.#floor()
    if (scene.goal) this.#goal(scene.goal, scene.nowMs)
    for (const effect of scene.effects) if (effect.kind === 'ring') this.#ring(effect)
    const figures = [...scene.figures].sort((a, b) => a.at.y - b.at.y)
    for (const figure of figures) this.#figure(figure, scene.nowMs)
    const crowded = figures.length > CROWD
    for (const figure of figures) if (!figure.mine) this.#label(figure, crowded)
    for (const figure of figures) if (figure.mine) this.#label(figure, false)
    for (const effect of scene.effects) this.#effect(effect)
  }

  #resize(): void {
    const { width, height } = this.#canvas.getBoundingClientRect()
    this.#ratio = Math.min(2, devicePixelRatio)
    this.#canvas.width = Math.round(width * this.#ratio)
    this.#canvas.height = Math.round(height * this.#ratio)
    this.#camera.resize(width, height)
  }

  #floor(): void {
    const paper = this.#paper
    paper.beginPath()
    paper.roundRect(-RADIUS, -RADIUS, SIDE + 2 * RADIUS, SIDE + 2 * RADIUS, 36)
    paper.fillStyle = this.#colours.floor
    paper.fill()
    paper.fillStyle = this.#colours.tile
    for (let x = 0; x < SIDE; x += TILE) {
      for (let y = (x / TILE) % 2 ? 0 : TILE; y < SIDE; y += 2 * TILE) paper.fillRect(x, y, TILE, TILE)
    }
    this.#markings()
    paper.lineWidth = 10
    paper.strokeStyle = this.#colours.wall
    paper.beginPath()
    paper.roundRect(-RADIUS, -RADIUS, SIDE + 2 * RADIUS, SIDE + 2 * RADIUS, 36)
    paper.stroke()
  }

  /** Draws lines on the floor, so that movement is visible. */
  #markings(): void {
    const paper = this.#paper
    const middle = SIDE / 2
    paper.lineWidth = 6
    paper.strokeStyle = this.#colours.mark
    paper.beginPath()
    paper.arc(middle, middle, 150, 0, 2 * Math.PI)
    paper.moveTo(middle + 26, middle)
    paper.arc(middle, middle, 26, 0, 2 * Math.PI)
    for (const [x, y, start] of CORNERS) {
      paper.moveTo(x + 90 * Math.cos(start), y + 90 * Math.sin(start))
      paper.arc(x, y, 90, start, start + Math.PI / 2)
    }
    paper.moveTo(middle, 40)
    paper.lineTo(middle, middle - 150)
    paper.moveTo(middle, middle + 150)
    paper.lineTo(middle, SIDE - 40)
    paper.stroke()
  }

  #goal(goal: Point, nowMs: number): void {
    const paper = this.#paper
    const swell = 1 + Math.sin(nowMs / 130) * 0.12
    paper.lineWidth = 3
    paper.strokeStyle = this.#colours.accent
    paper.setLineDash([9, 7])
    paper.beginPath()
    paper.arc(goal.x, goal.y, 15 * swell, 0, 2 * Math.PI)
    paper.stroke()
    paper.setLineDash([])
  }

  #figure(figure: Figure, nowMs: number): void {
    const paper = this.#paper
    const { x, y } = figure.at
    const bob = figure.walking ? Math.abs(Math.sin(nowMs / 75)) * 5 : 0
    const squash = figure.flash * 0.16

    paper.fillStyle = 'rgb(20 15 45 / 22%)'
    paper.beginPath()
    paper.ellipse(x, y + RADIUS * 0.92, RADIUS * (0.92 - bob * 0.02), RADIUS * 0.3, 0, 0, 2 * Math.PI)
    paper.fill()

    if (figure.mine) this.#halo(x, y, nowMs)
    paper.save()
    if (figure.away) paper.globalAlpha = 0.4
    paper.translate(x, y - bob)
    paper.scale(1 + squash, 1 - squash)
    this.#body(figure)
    this.#face(figure)
    paper.restore()
    if (figure.targeted) this.#crosshair(x, y)
  }

  #halo(x: number, y: number, nowMs: number): void {
    const paper = this.#paper
    paper.strokeStyle = this.#colours.accent
    paper.globalAlpha = 0.75 + Math.sin(nowMs / 320) * 0.2
    paper.lineWidth = 4
    paper.beginPath()
    paper.ellipse(x, y + RADIUS * 0.9, RADIUS * 1.45, RADIUS * 0.58, 0, 0, 2 * Math.PI)
    paper.stroke()
    paper.globalAlpha = 1
  }

  #body({ colour, flash, mine }: Figure): void {
    const paper = this.#paper
    paper.beginPath()
    paper.arc(0, 0, RADIUS, 0, 2 * Math.PI)
    paper.fillStyle = colour
    paper.fill()
    paper.save()
    paper.clip()
    paper.fillStyle = `color-mix(in oklab, ${colour}, white 30%)`
    paper.beginPath()
    paper.ellipse(-RADIUS * 0.25, -RADIUS * 0.5, RADIUS * 0.85, RADIUS * 0.6, -0.4, 0, 2 * Math.PI)
    paper.fill()
    paper.fillStyle = `rgb(255 255 255 / ${flash * 0.85})`
    paper.fillRect(-RADIUS, -RADIUS, 2 * RADIUS, 2 * RADIUS)
    paper.restore()
    paper.beginPath()
    paper.arc(0, 0, RADIUS, 0, 2 * Math.PI)
    paper.lineWidth = mine ? 4 : 2.5
    paper.strokeStyle = mine ? '#ffffff' : `color-mix(in oklab, ${colour}, black 45%)`
    paper.stroke()
  }

  #face({ facing, hp, flash }: Figure): void {
    const paper = this.#paper
    const look = { x: Math.cos(facing), y: Math.sin(facing) }
    const middle = { x: look.x * RADIUS * 0.28, y: look.y * RADIUS * 0.2 - 2 }
    for (const side of [-1, 1]) {
      const eye = { x: middle.x + side * RADIUS * 0.3, y: middle.y }
      paper.fillStyle = '#ffffff'
      paper.beginPath()
      paper.ellipse(eye.x, eye.y, 5.4, flash > 0.3 ? 2.5 : 7, 0, 0, 2 * Math.PI)
      paper.fill()
      paper.fillStyle = '#1a1730'
      paper.beginPath()
      paper.arc(eye.x + look.x * 2.2, eye.y + look.y * 2.6, flash > 0.3 ? 2 : 3.3, 0, 2 * Math.PI)
      paper.fill()
    }
    const smile = hp > 40 ? 1 : -1
    paper.strokeStyle = '#1a1730'
    paper.lineWidth = 2.4
    paper.lineCap = 'round'
    paper.beginPath()
    const mouthY = middle.y + (smile > 0 ? 9 : 15)
    if (smile > 0) paper.arc(middle.x, mouthY, 5.5, 0.25, Math.PI - 0.25)
    else paper.arc(middle.x, mouthY, 5, Math.PI + 0.3, -0.3)
    paper.stroke()
  }

  #crosshair(x: number, y: number): void {
    const paper = this.#paper
    paper.strokeStyle = '#ff5a4a'
    paper.lineWidth = 3.5
    paper.lineCap = 'round'
    for (let quarter = 0; quarter < 4; quarter++) {
      const start = (quarter * Math.PI) / 2 + 0.45
      paper.beginPath()
      paper.arc(x, y, RADIUS + 9, start, start + 0.68)
      paper.stroke()
    }
  }

  /** Draws name and health. */
  #label({ name, at, hp, colour, mine }: Figure, crowded: boolean): void {
    const paper = this.#paper
    const top = at.y - RADIUS - 22
    const hurt = hp < FULL_HP
    if (hurt || !crowded) this.#life(at.x, top, hp)

    // Names stay readable on a small floor.
    const size = Math.max(crowded ? 11 : 14, (crowded ? 10 : 11.5) / this.#camera.scale)
    const bottom = hurt || !crowded ? top - 8 : top + 6
    paper.font = `${mine ? 800 : 600} ${size}px ui-rounded, system-ui, sans-serif`
    paper.textAlign = 'center'
    paper.lineJoin = 'round'
    paper.lineWidth = 4
    paper.strokeStyle = this.#colours.halo
    paper.strokeText(name, at.x, bottom)
    paper.fillStyle = mine ? this.#colours.accent : this.#colours.text
    paper.fillText(name, at.x, bottom)
    if (mine) return
    const half = paper.measureText(name).width / 2
    paper.fillStyle = colour
    paper.beginPath()
    paper.arc(at.x - half - 8, bottom - size * 0.33, 4, 0, 2 * Math.PI)
    paper.fill()
  }

  #life(x: number, top: number, hp: number): void {
    const paper = this.#paper
    const width = 58
    paper.fillStyle = 'rgb(15 12 35 / 70%)'
    paper.beginPath()
    paper.roundRect(x - width / 2 - 2, top - 2, width + 4, 10, 5)
    paper.fill()
    paper.fillStyle = hp > 50 ? '#46d99b' : hp > 20 ? '#ffcf66' : '#ff6b5c'
    paper.beginPath()
    paper.roundRect(x - width / 2, top, Math.max(3, (width * Math.max(0, hp)) / FULL_HP), 6, 3)
    paper.fill()
  }

  #ring({ at, colour, age }: Extract<Effect, { kind: 'ring' }>): void {
    const paper = this.#paper
    paper.globalAlpha = 1 - age
    paper.lineWidth = 10 * (1 - age)
    paper.strokeStyle = colour
    paper.beginPath()
    paper.arc(at.x, at.y, 20 + 90 * Math.sqrt(age), 0, 2 * Math.PI)
    paper.stroke()
    paper.globalAlpha = 1
  }

  #effect(effect: Effect): void {
    if (effect.kind === 'ring') return
    const paper = this.#paper
    paper.globalAlpha = 1 - effect.age ** 2
    if (effect.kind === 'slash') {
      const { from, to, age } = effect
      const head = Math.min(1, age * 2.2)
      const tail = Math.max(0, age * 2.2 - 1)
      const along = (part: number): Point => ({
        x: from.x + (to.x - from.x) * part,
        y: from.y + (to.y - from.y) * part,
      })
      paper.lineCap = 'round'
      paper.lineWidth = 9 * (1 - age * 0.6)
      paper.strokeStyle = effect.colour
      paper.beginPath()
      paper.moveTo(along(tail).x, along(tail).y)
      paper.lineTo(along(head).x, along(head).y)
      paper.stroke()
    } else if (effect.kind === 'spark') {
      paper.fillStyle = effect.colour
      paper.beginPath()
      paper.arc(effect.at.x, effect.at.y, 5 * (1 - effect.age), 0, 2 * Math.PI)
      paper.fill()
    } else {
      paper.font = `800 ${effect.strong ? 40 : 22}px ui-rounded, system-ui, sans-serif`
      paper.textAlign = 'center'
      paper.lineJoin = 'round'
      paper.lineWidth = 5
      paper.strokeStyle = '#1a1730'
      paper.fillStyle = effect.strong ? '#ffcf66' : '#ff7d6e'
      const y = effect.at.y - RADIUS - 44 - effect.age * 34
      paper.strokeText(effect.text, effect.at.x, y)
      paper.fillText(effect.text, effect.at.x, y)
    }
    paper.globalAlpha = 1
  }
}
