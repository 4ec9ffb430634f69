import { $, setText } from './dom.js'
import { bytes, count, duration, percent } from './format.js'

const HISTORY = 60

/** The node at a glance: its name and state in the header, and the figures below. */
export class Glance {
  #clock
  #busy = []

  constructor(clock) {
    this.#clock = clock
  }

  show({ node, totals }) {
    setText($('node-id'), node.node_id)
    const { ahead_ms } = this.#clock
    const skew =
      ahead_ms === 0
        ? ''
        : `; this browser’s clock is ${duration(Math.abs(ahead_ms))} ${ahead_ms > 0 ? 'behind' : 'ahead of'} the node’s`
    setText($('about'), `version ${node.version}, up ${duration(this.#clock.age(node.started_at))}${skew}`)
    document.title = `${node.draining ? 'Draining: ' : ''}${node.node_id} – roomful`
    showStatus(node.draining ? 'draining' : 'serving', node.draining ? 'warn' : 'good')
    $('drain').disabled = node.draining
    setText($('rooms-total'), count(totals.rooms))
    setText($('members-total'), count(totals.members))
    setText($('sessions-total'), count(totals.sessions))
    const { event_loop_utilisation: share, event_loop_delay_ms: delay, rss_bytes: memory } = node.load
    setText($('loop'), percent(share))
    setText($('delay'), `${Math.round(delay)} ms`)
    setText($('memory'), bytes(memory))
    this.#busy.push(share)
    if (this.#busy.length > HISTORY) this.#busy.shift()
    const points = this.#busy.map(
      (value, i) =>
        `${((100 * (HISTORY - this.#busy.length + i)) / (HISTORY - 1)).toFixed(1)},${(23 - 22 * value).toFixed(1)}`,
    )
    $('loop-line').firstElementChild.setAttribute('points', points.join(' '))
  }
}

/** What state the node is in, as far as the page knows; `mood`: good, warn, bad or none. */
export function showStatus(word, mood) {
  setText($('status'), word)
  $('status').className = `pill ${mood}`
}
