import { create } from './dom.ts'

/** Connection status; `resumed` is `online` shortly after a successful resume. */
export type Status = 'connecting' | 'online' | 'reconnecting' | 'resumed' | 'closed'

const OUTAGE_MS = 2500

const LINK_ICON =
  'M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7l-1.5 1.5M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.7l1.5-1.5'

const PEOPLE_ICON =
  'M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM3 20a6 6 0 0 1 12 0M16 4.3a3.5 3.5 0 0 1 0 6.4M18 14.4a6 6 0 0 1 3.5 5.6'

function icon(path: string): SVGSVGElement {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg')
  svg.setAttribute('viewBox', '0 0 24 24')
  svg.setAttribute('class', 'icon')
  svg.setAttribute('aria-hidden', 'true')
  const stroke = document.createElementNS('http://www.w3.org/2000/svg', 'path')
  const look = {
    d: path,
    fill: 'none',
    stroke: 'currentColor',
    'stroke-width': '2',
    'stroke-linecap': 'round',
  }
  for (const [name, value] of Object.entries(look)) stroke.setAttribute(name, value)
  svg.append(stroke)
  return svg
}

/** Header and footer of every game: members, connection status, and buttons to invite players and to cut the connection. */
export class Bar {
  readonly #pill = create('span', { class: 'chip pill', role: 'status', 'data-status': 'connecting' })
  readonly #words = create('span', { text: 'connecting' })
  readonly #count = create('span', { class: 'chip count', hidden: '' })
  readonly #room = create('span')
  readonly #share = create(
    'button',
    { class: 'chip room', type: 'button', title: 'Copy the link to this room', hidden: '' },
    this.#room,
    icon(LINK_ICON),
  )
  // `noopener` gives the new tab a separate sessionStorage. Therefore the new tab is another player.
  readonly #second = create(
    'a',
    {
      class: 'chip second',
      target: '_blank',
      rel: 'noopener',
      title: 'Open a second player',
      'aria-label': 'Open a second player in a new tab',
      hidden: '',
    },
    create('span', { text: '+' }),
    create('span', { class: 'wide', text: 'second player' }),
  )

  /** Fills the page's `header` and `footer`. Calls `copied` when the address is on the clipboard. */
  constructor(
    { header, footer }: { header: HTMLElement; footer: HTMLElement },
    { game, scissors, copied }: { game: string; scissors: Scissors; copied: () => void },
  ) {
    const brand = create(
      'a',
      { class: 'brand', href: '/', 'aria-label': 'All games' },
      create('img', { src: '/favicon.svg', alt: '' }),
      create('span', { text: 'roomful' }),
    )
    this.#share.addEventListener(
      'click',
      () => void navigator.clipboard.writeText(location.href).then(copied),
    )
    this.#pill.append(create('span', { class: 'dot' }), this.#words)
    header.append(
      brand,
      this.#share,
      this.#count,
      create('span', { class: 'spring' }),
      this.#pill,
      this.#second,
    )

    const cut = create('button', { type: 'button', text: 'Cut my connection' })
    cut.addEventListener('click', () => {
      scissors.cut(OUTAGE_MS)
      cut.disabled = true
      setTimeout(() => {
        cut.disabled = false
      }, OUTAGE_MS)
    })
    footer.append(create('a', { href: `/${game}/source`, text: 'How this works' }), cut)
  }

  /** Shows the name of the room in the page's address, with links to it. */
  showRoom(name: string): void {
    this.#room.textContent = name
    this.#second.href = location.href
    // Without https, only pages of this machine may use the clipboard.
    this.#share.hidden = !isSecureContext
    this.#second.hidden = false
  }

  /** Shows the number of members. */
  showCount(people: number): void {
    this.#count.hidden = false
    const words = create('span', { class: 'wide', text: people === 1 ? 'player' : 'players' })
    this.#count.replaceChildren(create('span', { text: String(people) }), icon(PEOPLE_ICON), words)
  }

  /** Shows the connection status; `latency_ms` is the round trip, if known. */
  showStatus(status: Status, latencyMs?: number): void {
    this.#pill.dataset.status = status
    const ping = status === 'online' && latencyMs !== undefined ? `${Math.round(latencyMs)} ms` : status
    this.#words.textContent = ping
    this.#pill.title = `connection: ${status}`
  }
}

/** Websockets that the page can disconnect, to demonstrate a reconnect. */
interface Scissors {
  /** Replacement for the browser's WebSocket. */
  readonly WebSocket: typeof WebSocket
  /** Closes every open websocket and blocks new ones for `outage_ms`. */
  cut(outageMs: number): void
}

/** Creates a WebSocket class whose sockets can be closed as if the network were lost. */
export function cuttableSockets(now: () => number): Scissors {
  const open = new Set<WebSocket>()
  let blockedUntil = 0

  class CuttableSocket extends WebSocket {
    constructor(url: string | URL, protocols?: string | string[]) {
      super(url, protocols)
      open.add(this)
      this.addEventListener('close', () => open.delete(this))
      if (now() < blockedUntil) this.close()
    }
  }

  return {
    WebSocket: CuttableSocket,
    cut(outageMs) {
      blockedUntil = now() + outageMs
      for (const socket of open) socket.close()
    },
  }
}
