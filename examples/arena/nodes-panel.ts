import type { ClusterView } from '../backend/nodes.ts'
import { create } from '../ui/dom.ts'

const LOOK_EVERY_MS = 500
const ANSWER_MS = 2000

type NodeRow = ClusterView['nodes'][number]

/** The parts of a room that the panel needs. */
interface Whereabouts {
  /** `type:key`. */
  readonly id: string
  readonly memberId: string
}

/** Panel with the nodes: the node to which this page is connected, the owner (the node that runs the room), and the other nodes. */
export class NodesPanel {
  readonly #panel: HTMLDetailsElement
  readonly #room: Whereabouts
  readonly #edge = create('b')
  readonly #owner = create('b')
  readonly #rows = create('tbody')
  readonly #epoch = create('p', { class: 'epoch' })
  readonly #news = create('p', { class: 'visually-hidden', role: 'status' })
  #lastOwner: string | undefined
  #shown = ''

  /** `panel`: the hidden element to fill. It stays hidden if the backend has no nodes to show. */
  constructor(panel: HTMLDetailsElement, room: Whereabouts) {
    this.#panel = panel
    this.#room = room
    const summary = create('summary')
    summary.append(
      'you are at ',
      this.#edge,
      create('span', { class: 'dividing', text: '·' }),
      'the room is at ',
      this.#owner,
    )
    const head = create('tr')
    for (const text of ['node', 'rooms', 'players']) head.append(create('th', { scope: 'col', text }))
    const table = create(
      'table',
      {},
      create('caption', {
        class: 'visually-hidden',
        text: 'The nodes, with the rooms they own and the players connected to them',
      }),
      create('thead', {}, head),
      this.#rows,
    )
    panel.replaceChildren(summary, table, this.#epoch)
    panel.after(this.#news)
    void this.#look()
  }

  async #look(): Promise<void> {
    const view = document.hidden ? undefined : await this.#ask()
    if (view?.nodes.length === 0) return
    if (view) this.#show(view)
    setTimeout(() => void this.#look(), LOOK_EVERY_MS)
  }

  /** Returns undefined if the request fails. */
  async #ask(): Promise<ClusterView | undefined> {
    try {
      const signal = AbortSignal.timeout(ANSWER_MS)
      const response = await fetch(`/api/cluster?room_id=${encodeURIComponent(this.#room.id)}`, { signal })
      return response.ok ? ((await response.json()) as ClusterView) : undefined
    } catch {
      return undefined
    }
  }

  #show(view: ClusterView): void {
    if (this.#panel.hidden) {
      // At first, the panel is closed if there is only one node or if the screen is small.
      this.#panel.open = view.nodes.length > 1 && matchMedia('(min-width: 900px)').matches
      this.#panel.hidden = false
    }
    const me = this.#room.memberId
    const text = JSON.stringify([view, me])
    if (text === this.#shown) return
    this.#shown = text
    const edge = view.room?.edges[me]
    const owner = view.room?.owner
    this.#edge.textContent = edge ?? '…'
    this.#owner.textContent = owner ?? 'no node'
    this.#epoch.textContent = view.room ? `epoch ${view.room.epoch}` : 'waiting for a new owner'
    this.#rows.replaceChildren(...view.nodes.map((node) => row(node, { edge, owner })))
    this.#tellOwner(owner)
  }

  /** Announces a new owner, also to screen readers. */
  #tellOwner(owner: string | undefined): void {
    if (owner === undefined || owner === this.#lastOwner) return
    if (this.#lastOwner !== undefined) {
      this.#news.textContent = `${owner} runs the room now`
      this.#panel.classList.remove('moved')
      // Reading the layout restarts the animation.
      void this.#panel.offsetWidth
      this.#panel.classList.add('moved')
    }
    this.#lastOwner = owner
  }
}

function row(
  node: NodeRow,
  { edge, owner }: { edge: string | undefined; owner: string | undefined },
): HTMLElement {
  const name = create('th', { scope: 'row', title: node.node_id })
  name.append(create('span', { class: 'dot' }), create('span', { class: 'name', text: node.node_id }))
  if (node.state !== 'ready') name.append(create('span', { class: 'tag state', text: node.state }))
  if (node.node_id === owner) name.append(create('span', { class: 'tag owner', text: 'owner' }))
  if (node.node_id === edge) name.append(create('span', { class: 'tag edge', text: 'you' }))
  const cells = [node.rooms, node.players].map((count) => create('td', { text: String(count) }))
  return create('tr', { 'data-state': node.state }, name, ...cells)
}
