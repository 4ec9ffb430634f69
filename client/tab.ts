import type { Json } from '../shared/json.ts'
import type { JoinOptions } from '../shared/protocol/messages.ts'
import type { Random } from '../shared/random.ts'
import { RoomfulError } from './errors.ts'
import { tokenSub } from './token-source.ts'

/**
 * How long a tab waits for its name to be free: a page that is reloaded may hold it for longer where the machine is busy. Only a
 * duplicated tab waits it out.
 */
const LOCK_MS = 2000
/** The same where no one says that a name is free: every page waits it out. */
const HOLD_MS = 300
/** What is kept in another format gets another number. */
const PREFIX = 'roomful.1:'

/** Storage and locks of one tab, replaceable in tests. */
export interface TabPlatform {
  /** Storage of the tab. A reload keeps it. A duplicated tab starts with a copy. */
  readonly storage: Pick<Storage, 'getItem' | 'setItem' | 'removeItem' | 'key' | 'length'>
  /** Locks a name until the returned function is called or the page is closed. Undefined: another tab holds it. */
  hold(name: string): Promise<(() => void) | undefined>
}

/** What a session is resumed by. */
export interface Credentials {
  readonly session_id: string
  readonly resume_token: string
}

/** A reliable message that is not settled. */
export interface KeptMessage {
  readonly room_id: string
  readonly ref: number
  readonly type: string
  readonly data: Json
}

export interface KeptSeat {
  readonly room_type: string
  readonly options: JoinOptions
  readonly member_id: string
}

/** A session as an earlier page has left it. */
export interface KeptSession {
  readonly credentials: Credentials
  /** No ref of the session is higher. */
  readonly last_ref: number
  readonly seats: readonly KeptSeat[]
}

interface TabRecord extends KeptSession {
  /** What the storage has of this session beside the record is under this name; one page at a time holds it. */
  readonly id: string
}

/**
 * Keeps a session over reloads of its page. There is one record for each project and player (`sub`); messages lie beside it, one by one, so that
 * a message costs what it has bytes. Only the page that holds the record's name goes by it: a duplicated tab has a copy, and throws that away.
 */
export class TabSession {
  readonly #platform: TabPlatform
  readonly #random: Random
  /** Of the record; undefined before `open`. */
  #key: string | undefined
  /** Undefined: nothing is kept. */
  #id: string | undefined
  #release = () => {}

  constructor(platform: TabPlatform, random: Random) {
    this.#platform = platform
    this.#random = random
  }

  /**
   * The session that an earlier page of this tab has left, for the player of this token; undefined: there is none, and the one that begins now is
   * kept. Nothing is kept for a token that does not show its player.
   */
  async open(projectId: string, token: string): Promise<KeptSession | undefined> {
    const sub = tokenSub(token)
    const key = sub === undefined ? '' : `${PREFIX}${JSON.stringify([projectId, sub])}`
    if (this.#key !== undefined || key === '') {
      // A later session of the same page, which is of the same player but for a change that only its backend knows of.
      if (this.#key !== key) this.clear()
      return undefined
    }
    this.#key = key
    const record = this.#record
    if (record && (await this.#hold(record.id))) return this.#read()
    if (record) this.#forget(record.id)
    await this.#hold(this.#newId())
    return undefined
  }

  /** Whether the session outlives its page. */
  get keeps(): boolean {
    return this.#id !== undefined
  }

  /** The page is left, for now or for good: another page of the tab may go on. */
  leave(): void {
    this.#release()
    this.#release = () => {}
  }

  /** The page is shown again: the session as the last page of the tab has left it; undefined: there is none any more. */
  async comeBack(): Promise<KeptSession | undefined> {
    const id = this.#id!
    if (this.#record?.id === id && (await this.#hold(id))) return this.#read()
    await this.#hold(this.#newId())
    return undefined
  }

  /** Throws what the storage throws where there is no more room. */
  save(session: KeptSession): void {
    if (this.#id === undefined) return
    const { storage } = this.#platform
    storage.setItem(this.#key!, JSON.stringify({ ...session, id: this.#id } satisfies TabRecord))
    storage.setItem(this.#counter, String(session.last_ref))
  }

  /** Keeps a message that is about to be sent. Throws a RoomfulError (storage_full). */
  keep(message: KeptMessage): void {
    if (this.#id === undefined) return
    const { storage } = this.#platform
    try {
      storage.setItem(this.#counter, String(message.ref))
      storage.setItem(this.#nameOf(message.ref), JSON.stringify(message))
    } catch (cause) {
      const text =
        'The message cannot be kept over a reload of the page (resume: "tab"): the storage of the tab is full.'
      throw new RoomfulError('storage_full', text, { retryable: true, cause })
    }
  }

  /** The message with this ref is settled. */
  drop(ref: number): void {
    if (this.#id !== undefined) this.#platform.storage.removeItem(this.#nameOf(ref))
  }

  /** What an earlier page has sent and no one has settled, in the order of the refs. */
  get messages(): KeptMessage[] {
    const texts = this.#names(this.#nameOf('')).map((name) => this.#platform.storage.getItem(name)!)
    return texts.map((text) => JSON.parse(text) as KeptMessage).sort((a, b) => a.ref - b.ref)
  }

  /** The session is over, by wish or for good: nothing of it stays. */
  clear(): void {
    if (this.#id === undefined) return
    this.#forget(this.#id)
    this.#id = undefined
    this.leave()
  }

  get #counter(): string {
    return `${PREFIX}${this.#id}:last`
  }

  #nameOf(ref: number | ''): string {
    return `${PREFIX}${this.#id}:message:${ref}`
  }

  get #record(): TabRecord | undefined {
    try {
      return (
        (JSON.parse(this.#platform.storage.getItem(this.#key!) ?? 'null') as TabRecord | null) ?? undefined
      )
    } catch {
      // Scripts of the page can write there, too.
      return undefined
    }
  }

  #read(): KeptSession | undefined {
    const record = this.#record
    const counted = Number(this.#platform.storage.getItem(this.#counter))
    return record && { ...record, last_ref: Math.max(counted, record.last_ref) }
  }

  #newId(): string {
    return Array.from(this.#random.bytes(12), (byte) => byte.toString(36).padStart(2, '0')).join('')
  }

  async #hold(id: string): Promise<boolean> {
    const release = await this.#platform.hold(PREFIX + id)
    this.#id = release && id
    this.#release = release ?? (() => {})
    return release !== undefined
  }

  /** Removes what the storage has under a name. */
  #forget(id: string): void {
    const { storage } = this.#platform
    if (this.#record?.id === id) storage.removeItem(this.#key!)
    for (const name of this.#names(`${PREFIX}${id}:`)) storage.removeItem(name)
  }

  #names(prefix: string): string[] {
    const { storage } = this.#platform
    const names = Array.from({ length: storage.length }, (_, i) => storage.key(i)!)
    return names.filter((name) => name.startsWith(prefix))
  }
}

/** The tab of a browser; undefined where there is none (Node), or where it may keep nothing. */
export function browserTab(): TabPlatform | undefined {
  try {
    return typeof sessionStorage === 'undefined' ? undefined : { storage: sessionStorage, hold: platformHold }
  } catch {
    // A browser that forbids it throws at the mere look.
    return undefined
  }
}

/** Web Locks are there on secure pages only, in every tab the same. */
const platformHold = (name: string): Promise<(() => void) | undefined> =>
  globalThis.navigator?.locks ? holdLock(name) : holdChannel(name)

const holdLock = (name: string): Promise<(() => void) | undefined> =>
  new Promise((resolve) => {
    const held = () => new Promise<void>((release) => resolve(release))
    navigator.locks
      .request(name, { signal: AbortSignal.timeout(LOCK_MS) }, held)
      .catch(() => resolve(undefined))
  })

/** The page that has the name answers those that ask for it. */
function holdChannel(name: string): Promise<(() => void) | undefined> {
  const channel = new BroadcastChannel(name)
  return new Promise((resolve) => {
    const answer = ({ data }: MessageEvent): void => {
      if (data === 'whose') channel.postMessage('mine')
    }
    const free = setTimeout(() => {
      channel.onmessage = answer
      resolve(() => channel.close())
    }, HOLD_MS)
    channel.onmessage = ({ data }) => {
      if (data !== 'mine') return
      clearTimeout(free)
      channel.close()
      resolve(undefined)
    }
    channel.postMessage('whose')
  })
}
