const bytes = (text: string): Buffer => Buffer.from(text, 'utf8')

interface Member {
  readonly text: string
  readonly bytes: Buffer
}

/** Strings in the order of their UTF-8 bytes, as Redis orders the members of a sorted set with equal scores. */
export class OrderedSet {
  readonly #members: Member[] = []

  get size(): number {
    return this.#members.length
  }

  add(text: string): void {
    const key = bytes(text)
    const at = this.#position(key)
    if (this.#members[at]?.text !== text) this.#members.splice(at, 0, { text, bytes: key })
  }

  drop(text: string): void {
    const at = this.#position(bytes(text))
    if (this.#members[at]?.text === text) this.#members.splice(at, 1)
  }

  has(text: string): boolean {
    return this.#members[this.#position(bytes(text))]?.text === text
  }

  /** At most `limit` members smaller than `before` (all when undefined), largest first. */
  page(before: string | undefined, limit: number): string[] {
    const end = before === undefined ? this.#members.length : this.#position(bytes(before))
    return this.#members
      .slice(Math.max(0, end - limit), end)
      .map((member) => member.text)
      .reverse()
  }

  /** Index of the first member that is not smaller than `key`. */
  #position(key: Buffer): number {
    let low = 0
    let high = this.#members.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (Buffer.compare(this.#members[middle]!.bytes, key) < 0) low = middle + 1
      else high = middle
    }
    return low
  }
}
