import type { TabPlatform } from '../../../client/tab.ts'

/** The `window` of a page: its events. */
export class FakePage extends EventTarget {
  listeners = 0

  override addEventListener(...args: Parameters<EventTarget['addEventListener']>): void {
    this.listeners += 1
    super.addEventListener(...args)
  }

  override removeEventListener(...args: Parameters<EventTarget['removeEventListener']>): void {
    this.listeners -= 1
    super.removeEventListener(...args)
  }

  fire(type: string, fields: object = {}): void {
    this.dispatchEvent(Object.assign(new Event(type), fields))
  }
}

/** Tabs with shared locks. */
export class FakeBrowser {
  readonly #held = new Set<string>()

  /** Opens a tab. `copied`: the tab is a duplicate with the same storage. */
  tab(copied?: FakeTab): FakeTab {
    return new FakeTab(this.#held, copied)
  }
}

class FakeTab implements TabPlatform {
  /** Capacity of the storage, characters. */
  quota = Number.POSITIVE_INFINITY
  readonly #held: Set<string>
  readonly #items: Map<string, string>

  constructor(held: Set<string>, copied?: FakeTab) {
    this.#held = held
    this.#items = new Map(copied ? copied.items : [])
  }

  /** Content of the storage. */
  get items(): ReadonlyMap<string, string> {
    return this.#items
  }

  async hold(name: string): Promise<(() => void) | undefined> {
    if (this.#held.has(name)) return undefined
    this.#held.add(name)
    return () => this.#held.delete(name)
  }

  readonly storage: TabPlatform['storage'] = this.#storage()

  #storage(): TabPlatform['storage'] {
    const tab = this
    return {
      get length() {
        return tab.#items.size
      },
      key: (index) => [...tab.#items.keys()][index] ?? null,
      getItem: (name) => tab.#items.get(name) ?? null,
      removeItem: (name) => void tab.#items.delete(name),
      setItem(name, text) {
        const used = [...tab.#items].reduce((sum, [key, value]) => sum + key.length + value.length, 0)
        if (used + name.length + text.length > tab.quota) throw new Error('QuotaExceededError')
        tab.#items.set(name, text)
      },
    }
  }
}
