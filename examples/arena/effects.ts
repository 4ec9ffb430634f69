import type { Point } from './move.ts'

/** A short animation on the floor; `age` runs from 0 to 1. */
export type Effect =
  | { kind: 'slash'; from: Point; to: Point; colour: string; age: number }
  | { kind: 'spark'; at: Point; velocity: Point; colour: string; age: number }
  | { kind: 'ring'; at: Point; colour: string; age: number }
  | { kind: 'words'; at: Point; text: string; strong: boolean; age: number }

const SECONDS: Readonly<Record<Effect['kind'], number>> = { slash: 0.22, spark: 0.55, ring: 0.6, words: 0.9 }
const FLASH_MS = 180
const MOST = 400

/** Animations of hits, knockouts and arrivals. */
export class Effects {
  #effects: Effect[] = []
  readonly #flashes = new Map<string, number>()

  get all(): readonly Effect[] {
    return this.#effects
  }

  /** Adds a hit from one place to another. */
  blow(by: Point, victim: Point, target: string, colour: string, nowMs: number): void {
    this.#flashes.set(target, nowMs)
    this.#add({ kind: 'slash', from: by, to: victim, colour, age: 0 })
    const at = { x: victim.x + (Math.random() - 0.5) * 50, y: victim.y }
    this.#add({ kind: 'words', at, text: '−10', strong: false, age: 0 })
    this.#sparks(victim, colour, 7, 260)
  }

  /** Adds a knockout. */
  knockout(at: Point, colour: string): void {
    this.#add({ kind: 'ring', at, colour, age: 0 })
    this.#add({ kind: 'words', at, text: 'K.O.', strong: true, age: 0 })
    this.#sparks(at, colour, 26, 520)
  }

  /** Adds an arrival. */
  arrival(at: Point, colour: string): void {
    this.#add({ kind: 'ring', at, colour, age: 0 })
  }

  /** Brightness of a player's flash after a hit, from 1 to 0. */
  flash(id: string, nowMs: number): number {
    const since = nowMs - (this.#flashes.get(id) ?? Number.NEGATIVE_INFINITY)
    return Math.max(0, 1 - since / FLASH_MS)
  }

  step(seconds: number): void {
    for (const effect of this.#effects) {
      effect.age += seconds / SECONDS[effect.kind]
      if (effect.kind !== 'spark') continue
      effect.at = {
        x: effect.at.x + effect.velocity.x * seconds,
        y: effect.at.y + effect.velocity.y * seconds,
      }
      effect.velocity = { x: effect.velocity.x * (1 - 4 * seconds), y: effect.velocity.y * (1 - 4 * seconds) }
    }
    this.#effects = this.#effects.filter((effect) => effect.age < 1)
  }

  #sparks(at: Point, colour: string, count: number, speed: number): void {
    for (let index = 0; index < count; index++) {
      const angle = Math.random() * 2 * Math.PI
      const fast = speed * (0.4 + Math.random() * 0.6)
      const velocity = { x: Math.cos(angle) * fast, y: Math.sin(angle) * fast }
      this.#add({ kind: 'spark', at: { ...at }, velocity, colour, age: 0 })
    }
  }

  #add(effect: Effect): void {
    if (this.#effects.length < MOST) this.#effects.push(effect)
  }
}
