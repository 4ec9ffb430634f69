import type { Json } from '../shared/json.ts'
import type { JoinOptions } from '../shared/protocol/messages.ts'
import type { Random } from '../shared/random.ts'
import { RoomfulError } from './errors.ts'
import { tokenSub } from './token-source.ts'

/**
 * Time that a tab waits for its lock. A page that is being reloaded may hold it longer on a busy machine. Only a duplicated tab waits for
 * the whole time.
 */
const LOCK_MS = 2000
/** The same without Web Locks, where nothing reports a free name: every page waits for the whole time. */
const HOLD_MS = 300
/** Prefix of the stored keys. Increase the number when the format changes. */
const PREFIX = 'roomful.1:'

/** Storage and locks of one tab, replaceable in tests. */
export interface TabPlatform {
  /** Storage of the tab. A reload keeps it. A duplicated tab starts with a copy. */
  readonly storage: Pick<Storage, 'getItem' | 'setItem' | 'removeItem' | 'key' | 'length'>
  /** Locks a name until the returned function is called or the page is closed. Undefined: another tab holds it. */
  hold(name: string): Promise<(() => void) | undefined>
}

/** Credentials for resuming a session. */
export interface Credentials {
  readonly session_id: string
  readonly resume_token: string
}

/** A reliable message without an outcome. */
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
  /** Code of the room. Absent: it has none. */
  readonly code?: string
  /** Absent: a player. */
  readonly spectator?: boolean
}

/** A seat of the page before a reload, for `client.join`. */
export interface EarlierSeat {
  /** Room type. */
  readonly type: string
  /** Key of the room. */
  readonly key: string
  /** Id of the member in the room. */
  readonly memberId: string
  /** Code of the room. Absent: it has none. */
  readonly code?: string
  /** True: the client watches. */
  readonly spectator: boolean
}

/** Stored session of an earlier page. */
interface KeptSession {
  readonly credentials: Credentials
  /** Highest request id of the session. */
  readonly last_request: number
  readonly seats: readonly KeptSeat[]
}

interface TabRecord extends KeptSession {
  /** Prefix of the session's messages in the storage, and name of its lock. Only one page holds it. */
  readonly id: string
}

/**
 * Keeps a session across reloads of its page. Each project and player (`sub`) has one record. Messages are stored separately, so that the
 * cost of a message depends only on its size. Only the page that holds the record's lock uses it. A duplicated tab discards its copy.
 */
export class TabSession {
  readonly #platform: TabPlatform
  readonly #random: Random
  /** Storage key of the record; undefined before `open`. */
  #key: string | undefined
  /** Id of the stored session. Undefined: the session is not stored. */
  #id: string | undefined
  #release = () => {}

  constructor(platform: TabPlatform, random: Random) {
    this.#platform = platform
    this.#random = random
  }

  /**
   * Returns the stored session of an earlier page for this token's player. Undefined: there is none, and the new session will be stored. If
   * the token does not contain the player's id, nothing is stored.
   */
  async open(projectId: string, token: string): Promise<KeptSession | undefined> {
    const sub = tokenSub(token)
    const key = sub === undefined ? '' : `${PREFIX}${JSON.stringify([projectId, sub])}`
    if (this.#key !== undefined || key === '') {
      // A later session of the same page. Its player is the same, unless the backend changed it.
      if (this.#key !== key) this.clear()
      return undefined
    }
    this.#key = key
    const record = this.#record
    if (record && (await this.#hold(record.id))) return record
    if (record) this.#forget(record.id)
    await this.#hold(this.#newId())
    return undefined
  }

  /** True if the session survives its page. */
  get keeps(): boolean {
    return this.#id !== undefined
  }

  /** Releases the session when the page is hidden or closed. Another page of the tab may continue it. */
  leave(): void {
    this.#release()
    this.#release = () => {}
  }

  /** Returns the stored session when the page is shown again. Undefined: it has ended. */
  async comeBack(): Promise<KeptSession | undefined> {
    const id = this.#id!
    const record = this.#record
    if (record?.id === id && (await this.#hold(id))) return this.#record
    await this.#hold(this.#newId())
    return undefined
  }

  /** Stores the session. Throws the storage's error if it is full. */
  save(session: KeptSession): void {
    if (this.#id === undefined) return
    const { storage } = this.#platform
    storage.setItem(this.#key!, JSON.stringify({ ...session, id: this.#id } satisfies TabRecord))
  }

  /** Stores a message before it is sent. Throws a RoomfulError (storage_full). */
  keep(message: KeptMessage): void {
    if (this.#id === undefined) return
    const { storage } = this.#platform
    try {
      storage.setItem(this.#nameOf(message.room_id, message.ref), JSON.stringify(message))
      storage.setItem(this.#counterOf(message.room_id), String(message.ref))
    } catch (cause) {
      this.drop(message.room_id, message.ref)
      const text = 'The storage of the tab is full (resume: "tab").'
      throw new RoomfulError('storage_full', text, { retryable: true, cause })
    }
  }

  /** Removes the message with this ref, whose outcome is known. */
  drop(roomId: string, ref: number): void {
    if (this.#id !== undefined) this.#platform.storage.removeItem(this.#nameOf(roomId, ref))
  }

  /** Removes the messages of a seat that has ended. The refs of the next one start with 1. */
  restart(roomId: string): void {
    if (this.#id === undefined) return
    const names = [this.#counterOf(roomId), ...this.#names(this.#nameOf(roomId, ''))]
    for (const name of names) this.#platform.storage.removeItem(name)
  }

  /** Highest ref of the seat in a room; 0: it has sent no message. */
  lastRef(roomId: string): number {
    return Number(this.#platform.storage.getItem(this.#counterOf(roomId)))
  }

  /** Messages of an earlier page in a room without an outcome, in the order of the refs. */
  messages(roomId: string): KeptMessage[] {
    const texts = this.#names(this.#nameOf(roomId, '')).map((name) => this.#platform.storage.getItem(name)!)
    return texts.map((text) => JSON.parse(text) as KeptMessage).sort((a, b) => a.ref - b.ref)
  }

  /** Removes the session from the storage. */
  clear(): void {
    if (this.#id === undefined) return
    this.#forget(this.#id)
    this.#id = undefined
    this.leave()
  }

  #counterOf(roomId: string): string {
    return `${PREFIX}${this.#id}:last:${roomId}`
  }

  #nameOf(roomId: string, ref: number | ''): string {
    return `${PREFIX}${this.#id}:message:${JSON.stringify(roomId)}:${ref}`
  }

  get #record(): TabRecord | undefined {
    try {
      return (
        (JSON.parse(this.#platform.storage.getItem(this.#key!) ?? 'null') as TabRecord | null) ?? undefined
      )
    } catch {
      // Other scripts of the page can write to the storage, too.
      return undefined
    }
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

  /** Removes the record and the messages of a session. */
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

/** The browser's tab. Undefined in Node, and if the browser forbids storage. */
export function browserTab(): TabPlatform | undefined {
  try {
    return typeof sessionStorage === 'undefined' ? undefined : { storage: sessionStorage, hold: platformHold }
  } catch {
    // If storage is forbidden, reading the property throws.
    return undefined
  }
}

/** Locks a name with Web Locks, which exist on secure pages only. */
const platformHold = (name: string): Promise<(() => void) | undefined> =>
  globalThis.navigator?.locks ? holdLock(name) : holdChannel(name)

const holdLock = (name: string): Promise<(() => void) | undefined> =>
  new Promise((resolve) => {
    const held = () => new Promise<void>((release) => resolve(release))
    navigator.locks
      .request(name, { signal: AbortSignal.timeout(LOCK_MS) }, held)
      .catch(() => resolve(undefined))
  })

/** Locks a name with a BroadcastChannel: the page that holds it answers requests for it. */
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
