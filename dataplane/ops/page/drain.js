import { $, make, setText } from './dom.js'
import { count, counted, duration, timeOfDay } from './format.js'
import { pageOf } from './nodes.js'

/** The drain button, what it asks before it does anything, and how the drain goes. */
export class Drain {
  #api
  #on_told
  #runtime
  #nodes = []
  /** What there was to move, and when that was first seen. */
  #began

  /** `on_told` is called when the node was told to drain; with an error when that failed. */
  constructor({ api, on_told }) {
    this.#api = api
    this.#on_told = on_told
    $('drain').addEventListener('click', () => this.#askFirst())
    $('drain-sure').addEventListener('change', () => {
      $('drain-now').disabled = !$('drain-sure').checked
    })
    $('drain-dialog').addEventListener('close', () => {
      if ($('drain-dialog').returnValue === 'drain') this.#tell()
    })
  }

  /** Whether the node was draining when it last answered. */
  get under_way() {
    return this.#began !== undefined
  }

  /** The node and its cluster as they are now. */
  show(runtime, nodes) {
    const before = this.#runtime ?? runtime
    const restarted = before.node.started_at !== runtime.node.started_at
    this.#runtime = runtime
    this.#nodes = nodes
    // Another node may have gone while somebody thinks it over, or somebody else was faster.
    if (runtime.node.draining) $('drain-dialog').close()
    else if ($('drain-dialog').open) this.#describe()
    if (restarted || !runtime.node.draining) this.#began = undefined
    $('drain-progress').hidden = !runtime.node.draining
    if (!runtime.node.draining) return
    $('drain-bars').hidden = false
    $('drain-links').replaceChildren()
    const { rooms, sessions } = runtime.totals
    // Some of it may have been moved before the first answer that tells of the drain.
    this.#began ??= { at: Date.now(), ...(restarted ? runtime : before).totals }
    setText($('drain-title'), `${runtime.node.node_id} is draining`)
    setText(
      $('drain-text'),
      `for ${duration(Date.now() - this.#began.at)}; its process ends when it is done.`,
    )
    this.#progress('rooms', rooms)
    this.#progress('sessions', sessions)
  }

  /** The node does not answer any more, and was draining: it has ended, as far as can be told. */
  showEnd(heard_at) {
    const { node, totals } = this.#runtime
    setText($('drain-title'), `${node.node_id} has drained and ended`)
    const left = [counted(totals.rooms, 'room'), counted(totals.sessions, 'session')].join(' and ')
    setText($('drain-text'), `When it last answered, at ${timeOfDay(heard_at)}, it still had ${left}.`)
    $('drain-bars').hidden = true
    const links = this.#nodes
      .filter((other) => other.alive && !other.self && pageOf(other))
      .map((other) => make('a', { href: pageOf(other), className: 'mono' }, other.node_id))
    $('drain-links').replaceChildren(...(links.length > 0 ? ['Go on at ', ...links] : []))
  }

  #progress(what, left) {
    const of = Math.max(this.#began?.[what] ?? left, left)
    const done = of - left
    $(`drain-${what}`).style.width = `${of === 0 ? 100 : (100 * done) / of}%`
    setText($(`drain-${what}-text`), `${count(done)} of ${counted(of, what.slice(0, -1))} moved`)
  }

  #askFirst() {
    if (!this.#runtime) return
    this.#describe()
    $('drain-sure').checked = false
    $('drain-now').disabled = true
    $('drain-dialog').returnValue = ''
    $('drain-dialog').showModal()
  }

  /** Says what a drain would do, as things are now. */
  #describe() {
    const { node, totals } = this.#runtime
    const others = this.#nodes.filter((other) => other.alive && !other.self && !other.draining)
    setText($('drain-heading'), `Drain ${node.node_id}?`)
    setText(
      $('drain-what'),
      `It takes no new clients, hands over its ${counted(totals.rooms, 'room')}, moves its ${counted(totals.sessions, 'session')}, and then its process ends. This cannot be called back.`,
    )
    setText(
      $('drain-where'),
      others.length > 0
        ? `${counted(others.length, 'other node')} can take them; players stay in their rooms.`
        : 'No other node can take them: players wait until one is there, and rooms that are kept in no store are lost.',
    )
    $('drain-where').className = others.length > 0 ? 'soft' : 'alarm'
    setText($('drain-sure-text'), `Yes, drain ${node.node_id}`)
  }

  async #tell() {
    try {
      await this.#api.post('drain')
      this.#on_told()
    } catch (error) {
      this.#on_told(error)
    }
  }
}
