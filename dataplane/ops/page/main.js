// The page of GET /admin. Whatever comes from the node goes into the page as text, never as markup.
import { Api, Refused } from './api.js'
import { ClusterSearch } from './cluster-search.js'
import { $, setText } from './dom.js'
import { Drain } from './drain.js'
import { counted, duration, timeOfDay } from './format.js'
import { Glance, showStatus } from './glance.js'
import { Lists } from './lists.js'
import { NodeClock } from './node-clock.js'
import { Nodes } from './nodes.js'
import { Poller } from './poller.js'
import { RoomPanel } from './room-panel.js'

const EVERY_MS = 1000
/** A drain may take less than a second. */
const EVERY_MS_OF_A_DRAIN = 200
const TYPING_MS = 150
const MOST_PROJECTS = 20

/** Asks the node once a second, and shows what it says. */
class Console {
  #clock = new NodeClock()
  #api = new Api(this.#clock)
  #poller = new Poller((isLatest) => this.#round(isLatest))
  #refresh = async () => {
    if (this.#api.hasToken) await this.#poller.now()
  }
  #glance = new Glance(this.#clock)
  #nodes = new Nodes(this.#clock)
  #panel = new RoomPanel({ api: this.#api, on_change: this.#refresh })
  #lists = new Lists({
    clock: this.#clock,
    on_open: (room, opener) => this.#panel.toggle(room, opener),
    on_change: this.#refresh,
  })
  #cluster_search = new ClusterSearch({
    api: this.#api,
    on_open: (room, opener) => this.#panel.open(room, opener),
  })
  #drain = new Drain({ api: this.#api, on_told: (error) => this.#told(error) })
  /** Projects that rooms and sessions of this node are of, to look for rooms elsewhere. */
  #projects = new Set()
  #heard_at = 0

  start() {
    $('token-form').addEventListener('submit', (event) => {
      event.preventDefault()
      this.#api.keepToken($('token').value.trim())
      $('token').value = ''
      this.#poller.now()
    })
    $('forget').addEventListener('click', () => this.#lock(''))
    $('skip').addEventListener('click', (event) => {
      event.preventDefault()
      const main = $('node').hidden ? $('token') : $('node')
      main.focus()
    })
    this.#listenToSearch()
    document.addEventListener('keydown', (event) => this.#onKey(event))
    if (this.#api.hasToken) this.#poller.now()
    else this.#lock('')
  }

  #listenToSearch() {
    let timer = 0
    $('search').addEventListener('input', () => {
      clearTimeout(timer)
      this.#cluster_search.clear()
      timer = setTimeout(() => this.#lists.restart(), TYPING_MS)
    })
    $('search-form').addEventListener('submit', async (event) => {
      event.preventDefault()
      clearTimeout(timer)
      // What is listed may be the answer to what was typed before.
      await this.#lists.restart()
      if (!this.#lists.openFirst() && $('search').value.trim() !== '') this.#lookElsewhere()
    })
    $('elsewhere').addEventListener('click', () => this.#lookElsewhere())
  }

  #onKey(event) {
    if ($('drain-dialog').open || $('node').hidden) return
    const typing = event.target.matches('input')
    if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault()
      $('search').focus()
    } else if (event.key === 'Escape' && typing && $('search').value !== '') {
      $('search').value = ''
      this.#cluster_search.clear()
      this.#lists.restart()
    } else if (event.key === 'Escape' && this.#panel.room) this.#panel.close()
  }

  /** Asks for everything that is shown, and shows it. Resolves with when to ask again; undefined: the node did not answer. */
  async #round(isLatest) {
    try {
      const [runtime, { nodes }, room] = await Promise.all([
        this.#api.get('runtime', this.#lists.query),
        this.#api.get('cluster'),
        this.#panel.ask(),
      ])
      if (isLatest()) this.#show(runtime, nodes, room)
      return runtime.node.draining ? EVERY_MS_OF_A_DRAIN : EVERY_MS
    } catch (error) {
      if (isLatest()) this.#showFailure(error)
      return undefined
    }
  }

  #show(runtime, nodes, room) {
    this.#heard_at = Date.now()
    const unlocked = $('node').hidden
    for (const id of ['node', 'actions']) $(id).hidden = false
    $('gate').hidden = true
    $('banner').hidden = true
    document.body.classList.remove('stale')
    this.#glance.show(runtime)
    this.#nodes.show(nodes)
    this.#lists.show(runtime, this.#panel.room)
    this.#panel.show(room)
    this.#drain.show(runtime, nodes)
    for (const { project_id } of [...runtime.sessions, ...runtime.rooms])
      if (this.#projects.size < MOST_PROJECTS) this.#projects.add(project_id)
    if ($('search').value !== '')
      setText(
        $('announcer'),
        `${counted(runtime.found.rooms, 'room')} and ${counted(runtime.found.sessions, 'session')} match`,
      )
    if (unlocked && document.activeElement === document.body) $('node').focus()
  }

  #showFailure(error) {
    if (error instanceof Refused && error.status === 401) {
      this.#lock('The node does not accept this token. Is INTERNAL_TOKEN set there, and is it this one?')
      return
    }
    const answered = error instanceof Refused
    if (!answered && this.#drain.under_way) {
      showStatus('ended', '')
      this.#drain.showEnd(this.#heard_at)
      return
    }
    showStatus(answered ? 'failing' : 'no answer', 'bad')
    const old =
      this.#heard_at > 0
        ? ` What you see is from ${timeOfDay(this.#heard_at)}, ${duration(Date.now() - this.#heard_at)} ago.`
        : ''
    const what = answered
      ? `The node answers ${error.status}: ${error.message}.`
      : 'The node does not answer.'
    setText($('banner'), `${what}${old} Trying again.`)
    $('banner').hidden = false
    document.body.classList.toggle('stale', this.#heard_at > 0)
  }

  /** Forgets the token and asks for one; `why` says what was wrong with the last. */
  #lock(why) {
    this.#poller.stop()
    this.#api.forgetToken()
    this.#cluster_search.clear()
    $('drain-dialog').close()
    for (const id of ['node', 'actions', 'banner']) $(id).hidden = true
    document.body.classList.remove('stale')
    $('gate').hidden = false
    setText($('token-error'), why)
    for (const id of ['node-id', 'about']) setText($(id), '')
    showStatus('locked', '')
    $('token').focus()
  }

  #told(error) {
    if (!error) this.#poller.now()
    else if (error instanceof Refused && error.status === 401) this.#showFailure(error)
    else {
      setText($('banner'), `The node was not told to drain: ${error.message}`)
      $('banner').hidden = false
    }
  }

  /** Looks at every node, and in the store for a room that none has. */
  async #lookElsewhere() {
    const q = $('search').value.trim()
    let rooms
    try {
      rooms = await this.#cluster_search.look(q)
    } catch (error) {
      if (error instanceof Refused && error.status === 401) this.#showFailure(error)
      return
    }
    const [, project, room_id] = /^(?:([^/:\s]+)\/)?([^:\s]+:.+)$/.exec(q) ?? []
    if (!rooms || room_id === undefined) return
    const exact = rooms.filter(
      (room) => room.room_id === room_id && (project === undefined || room.project_id === project),
    )
    if (exact.length === 1) this.#panel.open(exact[0], $('search'))
    else if (rooms.length === 0) await this.#lookInStore(project ? [project] : [...this.#projects], room_id)
  }

  /** Opens a room that no node has, if it is of one of `projects`, and its record is still there. */
  async #lookInStore(projects, room_id) {
    const found = await Promise.all(
      projects.map((project_id) => this.#api.get('owner', { project_id, room_id }).catch(() => undefined)),
    )
    const room = found.find((each) => each?.owner) ?? found.find((each) => each?.epoch)
    if (room) this.#panel.open(room, $('search'))
  }
}

new Console().start()
