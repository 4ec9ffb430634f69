import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import {
  Api,
  type ClusterMatches,
  type ClusterNodeDescription,
  Refused,
  type RoomDescription,
  type RoomWhereabouts,
  type Runtime,
} from './api.ts'
import { counted, duration, fragmentOf, nameOf, type RoomName, roomOfFragment, timeOfDay } from './format.ts'
import type { Order } from './table.tsx'

const EVERY_MS = 1000
/** A drain may take less than a second. */
const EVERY_MS_OF_A_DRAIN = 200
const TYPING_MS = 150
const MOST_PROJECTS = 20
const FIRST_LIMIT = 50
const MOST_LISTED = 1000
const MOST_MEMBERS = 100
const BUSY_HISTORY = 60

export type Tab = 'rooms' | 'sessions'

/** The open room: at this node, elsewhere, or not answered for yet. */
type RoomAnswer = { readonly here: RoomDescription } | { readonly there: RoomWhereabouts }

/** What the node last said, and what it was asked. */
interface Heard {
  readonly runtime: Runtime
  readonly nodes: readonly ClusterNodeDescription[]
  /** The question behind the list: with another one its rows may move. */
  readonly version: string
  readonly at: number
}

/** A search over the whole cluster: asked for once, when it is wanted, and never by itself. */
type ClusterSearch = 'asking' | { readonly error: string } | ClusterMatches

interface Parts {
  readonly orders: Readonly<Record<Tab, Order<never>>>
  /** Shows everything as it is now, before it returns. */
  readonly show: () => void
}

/** The state of the page: what is asked of the node once a second, what it says, and what the person at it has chosen. */
export class AdminModel {
  readonly api = new Api()
  readonly #parts: Parts
  readonly #poller = new Poller((isLatest) => this.#round(isLatest))
  /** Why the token is asked for; undefined: there is one, that is not known to be wrong. */
  locked: string | undefined
  heard: Heard | undefined
  /** Shares of the last minute in which the event loop was busy. */
  busy: readonly number[] = []
  /** What is wrong, in the banner. */
  failure = ''
  status: { readonly word: string; readonly mood: '' | 'good' | 'warn' | 'bad' } = {
    word: 'asking…',
    mood: '',
  }
  /** What screen readers are told. */
  announcement = ''
  search = ''
  tab: Tab = 'rooms'
  #limit = FIRST_LIMIT
  found: ClusterSearch | undefined
  #searchTurn = 0
  #typing = 0
  room: RoomName | undefined
  answer: RoomAnswer | undefined
  #opener: HTMLElement | undefined
  /** What there was to move when the drain was first seen, and when that was. */
  drain: { readonly at: number; readonly rooms: number; readonly sessions: number } | undefined
  /** Projects that rooms and sessions of this node are of, to look for rooms elsewhere. */
  readonly #projects = new Set<string>()

  constructor(parts: Parts) {
    this.#parts = parts
  }

  start(): void {
    window.addEventListener('hashchange', () => this.#follow())
    this.api.takeToken()
    this.room = roomOfFragment(location.hash)
    if (this.api.hasToken) void this.#poller.now()
    else this.lock('')
    this.#parts.show()
  }

  /** Whether what is shown is old. */
  get stale(): boolean {
    return this.status.mood === 'bad' && this.heard !== undefined
  }

  /** Whether there is more to list than is listed, and may be. */
  get canListMore(): boolean {
    return this.#limit < MOST_LISTED
  }

  unlock(token: string): void {
    this.api.keepToken(token)
    void this.#poller.now()
  }

  /** Forgets the token and asks for one; `why` says what was wrong with the last. */
  lock(why: string): void {
    this.#poller.stop()
    this.api.forgetToken()
    this.clearFound()
    this.locked = why
    this.heard = undefined
    this.failure = ''
    this.drain = undefined
    this.status = { word: 'locked', mood: '' }
    document.title = 'roomful node'
    this.#parts.show()
    focusOn('token')
  }

  /** Something else is to be listed. */
  type(search: string): void {
    clearTimeout(this.#typing)
    this.search = search
    this.clearFound()
    this.#parts.show()
    this.#typing = window.setTimeout(() => void this.restart(), TYPING_MS)
  }

  /** Lists from the beginning, for another question; resolves when it is answered. */
  async restart(): Promise<void> {
    clearTimeout(this.#typing)
    this.#limit = FIRST_LIMIT
    await this.#refresh()
  }

  listMore(): void {
    this.#limit = Math.min(MOST_LISTED, 2 * this.#limit)
    void this.#refresh()
  }

  choose(tab: Tab): void {
    this.tab = tab
    this.#parts.show()
    void this.#refresh()
  }

  /** The order of a list is another, as `words` say. */
  sorted(words: string): void {
    this.announcement = words
    this.#parts.show()
    void this.#refresh()
  }

  /** Opens a room; `opener` gets the focus back when it is closed. */
  open({ project_id: projectId, room_id: roomId }: RoomName, opener: HTMLElement | undefined): void {
    this.#opener = opener
    this.#openRoom({ project_id: projectId, room_id: roomId })
    history.replaceState(null, '', `#${fragmentOf({ project_id: projectId, room_id: roomId })}`)
    focusOn('room-title')
  }

  close(): void {
    const opener = this.#opener
    this.#openRoom(undefined)
    history.replaceState(null, '', location.pathname)
    const back = opener?.isConnected ? opener : document.getElementById('search')
    back?.focus()
  }

  isOpen(room: RoomName): boolean {
    return this.room !== undefined && nameOf(this.room) === nameOf(room)
  }

  clearFound(): void {
    this.#searchTurn++
    this.found = undefined
  }

  /** Looks at every node, and in the store for a room that none has. */
  async lookElsewhere(): Promise<void> {
    const q = this.search.trim()
    const turn = ++this.#searchTurn
    const finish = (found: ClusterSearch): boolean => {
      if (turn !== this.#searchTurn) return false
      this.found = found
      this.#parts.show()
      document.getElementById('found')?.scrollIntoView({ block: 'nearest' })
      return true
    }
    finish('asking')
    let rooms: ClusterMatches['rooms']
    try {
      const matches = await this.api.get<ClusterMatches>('search', { q })
      if (!finish(matches)) return
      rooms = matches.rooms
    } catch (error) {
      finish({ error: (error as Error).message })
      if (isWrongToken(error)) this.#fail(error)
      return
    }
    const [, project, roomId] = /^(?:([^/:\s]+)\/)?([^:\s]+:.+)$/.exec(q) ?? []
    if (roomId === undefined) return
    const exact = rooms.filter(
      (room) => room.room_id === roomId && (project === undefined || room.project_id === project),
    )
    const opener = document.getElementById('search') ?? undefined
    if (exact.length === 1) this.open(exact[0]!, opener)
    else if (rooms.length === 0) {
      const room = await this.#lookInStore(project ? [project] : [...this.#projects], roomId)
      if (room) this.open(room, opener)
    }
  }

  /** Tells the node to drain. */
  async startDrain(): Promise<void> {
    try {
      await this.api.post('drain')
      await this.#poller.now()
    } catch (error) {
      if (isWrongToken(error)) this.#fail(error)
      else {
        this.failure = `The node was not told to drain: ${(error as Error).message}`
        this.#parts.show()
      }
    }
  }

  /** A room that no node has, if it is of one of `projects`, and its record is still there. */
  async #lookInStore(projects: readonly string[], roomId: string): Promise<RoomName | undefined> {
    const found = await Promise.all(
      projects.map((projectId) =>
        this.api
          .get<RoomWhereabouts>('owner', { project_id: projectId, room_id: roomId })
          .catch(() => undefined),
      ),
    )
    return found.find((each) => each?.owner) ?? found.find((each) => each?.epoch)
  }

  async #refresh(): Promise<void> {
    if (this.api.hasToken) await this.#poller.now()
  }

  /** The address names another room, or has a token. */
  #follow(): void {
    if (this.api.takeToken()) void this.#poller.now()
    const room = roomOfFragment(location.hash)
    if ((room && nameOf(room)) !== (this.room && nameOf(this.room))) this.#openRoom(room)
  }

  #openRoom(room: RoomName | undefined): void {
    this.room = room
    this.answer = undefined
    this.#parts.show()
    void this.#refresh()
  }

  /** Asks for everything that is shown, and shows it. */
  #round: Round = async (isLatest) => {
    const { tab, room } = this
    const sort = this.#parts.orders[tab].query
    const q = this.search.trim()
    const query = { q, limit: String(this.#limit), members: '0', [`sort_${tab}`]: sort }
    try {
      const [runtime, { nodes }, answer] = await Promise.all([
        this.api.get<Runtime>('runtime', query),
        this.api.get<{ nodes: readonly ClusterNodeDescription[] }>('cluster'),
        room && this.#ask(room),
      ])
      if (isLatest()) this.#hear({ runtime, nodes, version: `${tab} ${sort} ${q}`, at: Date.now() }, answer)
      return runtime.node.draining ? EVERY_MS_OF_A_DRAIN : EVERY_MS
    } catch (error) {
      if (isLatest()) this.#fail(error)
      return undefined
    }
  }

  async #ask(room: RoomName): Promise<RoomAnswer> {
    const { rooms } = await this.api.get<Runtime>('runtime', {
      ...room,
      include_state: '1',
      include_events: '1',
      members: String(MOST_MEMBERS),
      limit: '1',
    })
    return rooms[0]
      ? { here: rooms[0] }
      : { there: await this.api.get<RoomWhereabouts>('owner', { ...room }) }
  }

  #hear(heard: Heard, answer: RoomAnswer | undefined): void {
    const { runtime } = heard
    const { node, found } = runtime
    const before = this.heard?.runtime ?? runtime
    const restarted = before.node.started_at !== node.started_at
    if (restarted || !node.draining) this.drain = undefined
    // Some of it may have been moved before the first answer that tells of the drain.
    if (node.draining) this.drain ??= { at: Date.now(), ...(restarted ? runtime : before).totals }
    this.locked = undefined
    this.failure = ''
    this.heard = heard
    this.answer = answer
    this.busy = [...this.busy, node.load.event_loop_utilisation].slice(-BUSY_HISTORY)
    this.status = node.draining ? { word: 'draining', mood: 'warn' } : { word: 'serving', mood: 'good' }
    document.title = `${node.draining ? 'Draining: ' : ''}${node.node_id} – roomful`
    for (const { project_id: projectId } of [...runtime.sessions, ...runtime.rooms])
      if (this.#projects.size < MOST_PROJECTS) this.#projects.add(projectId)
    if (this.search !== '')
      this.announcement = `${counted(found.rooms, 'room')} and ${counted(found.sessions, 'session')} match`
    const wasHidden = document.getElementById('node') === null
    this.#parts.show()
    // It is taller than the window: to scroll there would hide the header.
    if (wasHidden && document.activeElement === document.body)
      document.getElementById('node')?.focus({ preventScroll: true })
  }

  #fail(error: unknown): void {
    if (isWrongToken(error)) {
      this.lock('The node does not accept this token. Is INTERNAL_TOKEN set there, and is it this one?')
      return
    }
    const answered = error instanceof Refused
    if (!answered && this.drain) this.status = { word: 'ended', mood: '' }
    else {
      this.status = { word: answered ? 'failing' : 'no answer', mood: 'bad' }
      const what = answered
        ? `The node answers ${error.status}: ${error.message}.`
        : 'The node does not answer.'
      const { at } = this.heard ?? {}
      const old = at ? ` What you see is from ${timeOfDay(at)}, ${duration(Date.now() - at)} ago.` : ''
      this.failure = `${what}${old} Trying again.`
    }
    this.#parts.show()
  }
}

/** Gives the focus to the element of an id, if it is there. */
export const focusOn = (id: string): void => document.getElementById(id)?.focus()

const isWrongToken = (error: unknown): boolean => error instanceof Refused && error.status === 401

export const ModelContext = createContext<AdminModel | undefined>(undefined)

/** The state of the page that a component is of. */
export const useModel = (): AdminModel => useContext(ModelContext)!

const FIRST_RETRY_MS = 1000
const LONGEST_MS = 5000
/** The node is to be busy with this page for a small part of the time at most, however long it takes to answer. */
const REST = 5

/**
 * Does the work of one round: resolves with how long to wait for the next, in milliseconds, or undefined when it failed. `isLatest()` tells
 * whether a newer one has begun.
 */
type Round = (isLatest: () => boolean) => Promise<number | undefined>

/** Does one round after another; less often when rounds take long or fail, and not while the tab is hidden. */
class Poller {
  readonly #round: Round
  #timer = 0
  #running = false
  #turn = 0
  #failures = 0

  constructor(round: Round) {
    this.#round = round
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) clearTimeout(this.#timer)
      else if (this.#running) void this.now()
    })
  }

  /** Begins a round at once, and goes on from there. */
  async now(): Promise<void> {
    clearTimeout(this.#timer)
    this.#running = true
    const turn = ++this.#turn
    const isLatest = () => turn === this.#turn
    const began = performance.now()
    const pause = await this.#round(isLatest)
    if (!isLatest()) return
    this.#failures = pause === undefined ? this.#failures + 1 : 0
    const wait = pause ?? Math.min(LONGEST_MS, FIRST_RETRY_MS * 2 ** (this.#failures - 1))
    const took = performance.now() - began
    if (!document.hidden) this.#timer = window.setTimeout(() => this.now(), Math.max(wait, REST * took))
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#running = false
    this.#turn++
  }
}
