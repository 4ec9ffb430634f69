/** Everything that happens to a process passes its gate: nothing while the process stands still, and nothing ever again once it is dead. */
export class Gate {
  readonly #waiting: (() => void)[] = []
  #paused = false
  #dead = false

  /** Runs `happening` in its turn. */
  pass(happening: () => void): void {
    if (this.#dead) return
    if (this.#paused) this.#waiting.push(happening)
    else happening()
  }

  pause(): void {
    this.#paused = true
  }

  resume(): void {
    this.#paused = false
    for (const happening of this.#waiting.splice(0)) this.pass(happening)
  }

  kill(): void {
    this.#dead = true
    this.#waiting.length = 0
  }
}
