/** Maximum number of players that one room keeps out. */
export const MAX_BANS = 1000

/** Changes of a room's bans since the update before: values of `sub`. */
export interface BanChanges {
  readonly added: readonly string[]
  readonly removed: readonly string[]
}

export const NO_BAN_CHANGES: BanChanges = { added: [], removed: [] }

/** Players (`sub`) that a room keeps out, as of its last turn and as of its last flush. */
export class Bans {
  #present: ReadonlySet<string>
  #flushed: ReadonlySet<string>

  constructor(restored: readonly string[]) {
    this.#present = new Set(restored)
    this.#flushed = this.#present
  }

  /** As of the last turn. A turn that bans or unbans replaces the set, so that a failed turn changes nothing. */
  get present(): ReadonlySet<string> {
    return this.#present
  }

  set present(subs: ReadonlySet<string>) {
    this.#present = subs
  }

  /** True if there is anything to flush. */
  get changed(): boolean {
    return this.#present !== this.#flushed
  }

  /** Returns the changes since the last flush. */
  flush(): BanChanges {
    if (!this.changed) return NO_BAN_CHANGES
    const [before, now] = [this.#flushed, this.#present]
    this.#flushed = now
    return {
      added: [...now].filter((sub) => !before.has(sub)),
      removed: [...before].filter((sub) => !now.has(sub)),
    }
  }

  /** As of the last flush. */
  get flushed(): readonly string[] {
    return [...this.#flushed]
  }
}
