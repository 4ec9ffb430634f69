import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import type { RoomDescription } from '../../dataplane/descriptions.ts'
import type { ClusterNode, RoomWhereabouts } from '../../dataplane/ops/admin.ts'
import type { ClusterMatches, RuntimeAnswer } from '../../dataplane/ops/runtime.ts'
import { Api, Control, Refused } from './api.ts'
import { duration, timeOfDay } from './table.tsx'

const EVERY_MS = 1000
const FIRST_RETRY_MS = 500
const LONGEST_RETRY_MS = 10_000
/** After an answer, the page pauses for this multiple of the answer's duration. */
const REST = 5
const TYPING_MS = 150
const DONE_MS = 10_000
const FIRST_LIMIT = 50
/** Largest `limit` that the node accepts. */
const MOST_LISTED = 1000

/** Names of a room in the calls of nodes. */
export interface RoomName {
  readonly project_id: string
  readonly room_id: string
}

/** A room as `project/type:key`, unique in the cluster. */
export const nameOf = (room: RoomName): string => `${room.project_id}/${room.room_id}`

/** The part of the address behind `#` that opens a room. */
export const fragmentOf = (room: RoomName): string => `room=${encodeURIComponent(nameOf(room))}`

/** Returns the room of an address fragment. Undefined: it is not such a fragment. */
function roomOfFragment(fragment: string): RoomName | undefined {
  const [, name] = /^#room=(.+)$/.exec(fragment) ?? []
  if (name === undefined) return undefined
  let text: string
  try {
    text = decodeURIComponent(name)
  } catch {
    return undefined
  }
  const slash = text.indexOf('/')
  const room = { project_id: text.slice(0, slash), room_id: text.slice(slash + 1) }
  return slash > 0 && /^[^:]+:./.test(room.room_id) ? room : undefined
}

/** Address of a node's page with a room open. Undefined: the node has no address that a browser can open. */
export function pageOf(
  { admin_url: adminUrl }: { readonly admin_url?: string },
  room?: RoomName,
): string | undefined {
  if (adminUrl === undefined || !URL.canParse(adminUrl)) return undefined
  const url = new URL(adminUrl)
  url.pathname = `${url.pathname.replace(/\/$/, '')}/admin`
  if (!/^https?:$/.test(url.protocol) || /^(0\.0\.0\.0|\[::\])$/.test(url.hostname)) return undefined
  if (room) url.hash = fragmentOf(room)
  return url.href
}

export type Tab = 'rooms' | 'sessions' | 'listed' | 'queues' | 'notices' | 'bans' | 'projects'

/** The open room: at this node, or elsewhere. */
type RoomAnswer = { readonly here: RoomDescription } | { readonly there: RoomWhereabouts }

/** A search at all nodes. */
type ClusterSearch = 'asking' | { readonly error: string } | ClusterMatches

/** An action that runs after the operator has confirmed it. */
export interface Action {
  /** Question, such as `End the session ses_1?`. */
  readonly title: string
  /** Id of the project in which it acts. Absent: the question names the project or the node. */
  readonly project?: string
  /** Effects of the action, one paragraph each. */
  readonly effects: readonly string[]
  /** Warning paragraph. */
  readonly warning?: string
  /** Text of the button. */
  readonly button: string
  /** True: the button is not marked as dangerous. */
  readonly isHarmless?: true
  /** Text of a checkbox that enables the button. */
  readonly sure?: string
  readonly fields?: readonly Field[]
  /** True: it calls only the node. Otherwise it calls control, which requires the operator token. */
  readonly isLocal?: true
  /** Runs the action. Resolves with a sentence about the result; empty: none is needed. Rejects with an error for the operator. */
  readonly run: (values: Readonly<Record<string, string>>, model: AdminModel) => Promise<string>
}

/** An input of an action. */
export interface Field {
  readonly name: string
  readonly label: string
  /** Values with their texts. Absent: any text. */
  readonly choices?: readonly (readonly [value: string, text: string])[]
}

/** Choices of the operator that affect the view, but not the requests. */
interface Choices {
  tab: Tab
  /** Id of the project of the tabs that show one. It changes only when the operator chooses another. Empty: unknown. */
  project: string
  /** Room type whose list is shown. Undefined: the first one. */
  listedType: string | undefined
  /** Action that waits for the operator's confirmation. */
  action: Action | undefined
}

/** State of the page: the last answer of the node, and the operator's choices. */
export class AdminModel implements Choices {
  readonly api = new Api()
  readonly control = new Control()
  readonly #show: () => void
  /** Reason why the page asks for the token. Undefined: it has a token that the node has not rejected. */
  locked: string | undefined
  heard:
    | {
        readonly runtime: RuntimeAnswer
        readonly nodes: readonly ClusterNode[]
        readonly at: number
      }
    | undefined
  /** Text of the banner. */
  failure = ''
  status: { readonly word: string; readonly mood: '' | 'good' | 'warn' | 'bad' } = {
    word: 'asking…',
    mood: '',
  }
  search = ''
  tab: Tab = 'rooms'
  project = ''
  listedType: string | undefined
  action: Action | undefined
  /** Result of the last action. */
  done = ''
  #limit = FIRST_LIMIT
  found: ClusterSearch | undefined
  room: RoomName | undefined
  answer: RoomAnswer | undefined
  #opener: HTMLElement | undefined
  /** Rooms and sessions at the start of the drain. */
  drain: { readonly at: number; readonly rooms: number; readonly sessions: number } | undefined
  #timer = 0
  #turn = 0
  #failures = 0

  /** `show` renders the page before it returns. */
  constructor(show: () => void) {
    this.#show = show
  }

  start(): void {
    const follow = () => {
      const took = this.api.takeToken()
      const room = roomOfFragment(location.hash)
      if (took || (room && nameOf(room)) !== (this.room && nameOf(this.room))) this.#openRoom(room)
    }
    window.addEventListener('hashchange', follow)
    // Without this check, a browser tab in the background would call the node all day.
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) clearTimeout(this.#timer)
      else this.refresh()
    })
    follow()
    if (this.api.hasToken) this.refresh()
    else this.lock('')
  }

  get canListMore(): boolean {
    return this.#limit < MOST_LISTED
  }

  unlock(token: string): void {
    this.api.keepToken(token)
    this.refresh()
  }

  /** Forgets the token, and asks for a new one. `why`: what was wrong with the old one. */
  lock(why: string): void {
    clearTimeout(this.#timer)
    this.#turn++
    this.api.forgetToken()
    this.control.forget()
    this.action = this.found = this.heard = this.drain = undefined
    this.done = this.failure = ''
    this.locked = why
    this.status = { word: 'locked', mood: '' }
    document.title = 'roomful node'
    this.#show()
    focusOn('token')
  }

  type(search: string): void {
    clearTimeout(this.#timer)
    this.search = search
    this.found = undefined
    this.#limit = FIRST_LIMIT
    this.#show()
    this.#timer = window.setTimeout(() => this.refresh(), TYPING_MS)
  }

  listMore(): void {
    this.#limit = Math.min(MOST_LISTED, 2 * this.#limit)
    this.refresh()
  }

  /** Projects with rooms or sessions in the page's lists. */
  get projectsHere(): string[] {
    const { rooms, sessions } = this.heard!.runtime
    return [...new Set([...rooms, ...sessions].map(({ project_id: id }) => id))]
  }

  choose(choices: Partial<Choices>): void {
    Object.assign(this, choices)
    if (choices.action) this.done = ''
    this.#show()
  }

  /** Shows the result of an action for some seconds. */
  finish(done: string): void {
    this.done = done
    window.setTimeout(() => {
      if (this.done !== done) return
      this.done = ''
      this.#show()
    }, DONE_MS)
    void this.refresh()
  }

  /** Moves the focus to the search. */
  focusSearch(): void {
    if (this.tab !== 'rooms' && this.tab !== 'sessions') this.choose({ tab: 'rooms' })
    focusOn('search')
  }

  /** Opens a room. `opener` gets the focus back when it is closed. */
  open({ project_id, room_id }: RoomName, opener?: HTMLElement): void {
    const room = { project_id, room_id }
    this.#opener = opener
    this.#openRoom(room)
    history.replaceState(null, '', `#${fragmentOf(room)}`)
    focusOn('room-title')
  }

  close(): void {
    this.#openRoom(undefined)
    history.replaceState(null, '', location.pathname)
    if (this.#opener?.isConnected) this.#opener.focus()
    else this.focusSearch()
  }

  isOpen(room: RoomName): boolean {
    return this.room !== undefined && nameOf(this.room) === nameOf(room)
  }

  /** Searches all nodes. Opens a single match, and a room whose whole name was typed, because the store may know it. */
  async lookElsewhere(): Promise<void> {
    const q = this.search.trim()
    const tell = (found: ClusterSearch) => {
      if (q === this.search.trim()) this.found = found
      this.#show()
    }
    tell('asking')
    try {
      const matches = await this.api.ask<ClusterMatches>('admin/search', { q })
      tell(matches)
      const named = roomOfFragment(`#room=${encodeURIComponent(q)}`)
      const [room = named, ...more] = matches.rooms.filter(({ room_id: id }) => id === q)
      if (room && more.length === 0) this.open(room, document.getElementById('search') ?? undefined)
    } catch (error) {
      tell({ error: (error as Error).message })
      if (isWrongToken(error)) this.#fail(error)
    }
  }

  /** Cordons or uncordons the node. */
  async tell(action: 'cordon' | 'uncordon'): Promise<void> {
    try {
      await this.api.ask(`admin/${action}`, {}, 'POST')
      this.refresh()
    } catch (error) {
      if (isWrongToken(error)) this.#fail(error)
      else this.failure = `The node was not told to ${action}: ${(error as Error).message}`
      this.#show()
    }
  }

  #openRoom(room: RoomName | undefined): void {
    this.room = room
    this.answer = undefined
    this.#show()
    this.refresh()
  }

  /** Requests everything that is shown, and repeats this every second; less often if answers take long or fail. */
  async refresh(): Promise<void> {
    clearTimeout(this.#timer)
    if (!this.api.hasToken) return
    const turn = ++this.#turn
    const began = performance.now()
    try {
      const query = { q: this.search.trim(), limit: String(this.#limit) }
      const [runtime, { nodes }, answer] = await Promise.all([
        this.api.ask<RuntimeAnswer>('admin/runtime', query),
        this.api.ask<{ nodes: readonly ClusterNode[] }>('admin/cluster'),
        this.room && this.#askFor(this.room),
      ])
      if (turn !== this.#turn) return
      this.#failures = 0
      this.#hear(runtime, nodes, answer)
    } catch (error) {
      if (turn !== this.#turn) return
      this.#failures++
      this.#fail(error)
      if (this.locked !== undefined) return
    }
    const retryMs = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** (this.#failures - 1))
    const wait = Math.max(this.#failures > 0 ? retryMs : EVERY_MS, REST * (performance.now() - began))
    if (!document.hidden) this.#timer = window.setTimeout(() => this.refresh(), wait)
  }

  async #askFor(room: RoomName): Promise<RoomAnswer> {
    const query = { room_id: room.room_id, include_state: '1' }
    const { rooms } = await this.api.ask<RuntimeAnswer>('admin/runtime', query)
    const here = rooms.find(({ project_id: projectId }) => projectId === room.project_id)
    return here ? { here } : { there: await this.api.ask<RoomWhereabouts>('admin/owner', { ...room }) }
  }

  #hear(runtime: RuntimeAnswer, nodes: readonly ClusterNode[], answer: RoomAnswer | undefined): void {
    const { node } = runtime
    const before = this.heard?.runtime ?? runtime
    const restarted = before.node.started_at !== node.started_at
    if (restarted || !node.draining) this.drain = undefined
    // The node may have moved some before its first answer during the drain.
    if (node.draining) this.drain ??= { at: Date.now(), ...(restarted ? runtime : before).totals }
    const isFirst = this.heard === undefined
    this.locked = undefined
    this.failure = ''
    this.heard = { runtime, nodes, at: Date.now() }
    this.project ||= this.projectsHere[0] ?? ''
    this.answer = answer
    const self = nodes.find((each) => each.self)
    const word = self ? stateOf(self) : 'serving'
    this.status = { word, mood: word === 'serving' ? 'good' : 'warn' }
    document.title = `${node.draining ? 'Draining: ' : ''}${node.node_id} – roomful`
    this.#show()
    if (isFirst && document.activeElement === document.body)
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
        ? `The node answers ${error.status}: ${error.message}`
        : 'The node does not answer.'
      const { at } = this.heard ?? {}
      const old = at ? ` What you see is from ${timeOfDay(at)}, ${duration(Date.now() - at)} ago.` : ''
      this.failure = `${what}${old} Trying again.`
    }
    this.#show()
  }
}

/** Returns the state of a node in one or two words. */
export const stateOf = ({ alive, draining, cordoned, not_ready: reasons }: ClusterNode): string =>
  !alive
    ? 'gone'
    : draining
      ? 'draining'
      : cordoned
        ? 'cordoned'
        : reasons.length > 0
          ? 'not ready'
          : 'serving'

/** Moves the focus to the element with an id, if it exists. */
export const focusOn = (id: string): void => document.getElementById(id)?.focus()

const isWrongToken = (error: unknown): boolean => error instanceof Refused && error.status === 401

export const ModelContext = createContext<AdminModel | undefined>(undefined)

export const useModel = (): AdminModel => useContext(ModelContext)!
