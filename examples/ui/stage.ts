import { type Client, connect, type Room } from 'roomful/client'
import type { TypedRoom } from '../../shared/room-types.ts'
import { Bar } from './bar.ts'
import { byId, create } from './dom.ts'
import { Login } from './login.ts'
import { watchSockets } from './sockets.ts'
import { Toasts } from './toasts.ts'

const RESUMED_SHOWN_MS = 2500
const PING_SHOWN_MS = 1000

/** A game that has begun: the room, and the parts that all pages share. */
export interface Stage<R extends TypedRoom> {
  client: Client
  room: Room<R>
  bar: Bar
  toasts: Toasts
}

/** The room named in the address; a visitor without one gets `lobby-1`, and an address that can be shared. */
function roomKey(): string {
  const address = new URL(location.href)
  const key = address.searchParams.get('room')?.trim().slice(0, 128)
  if (key) return key
  address.searchParams.set('room', 'lobby-1')
  history.replaceState(null, '', address)
  return 'lobby-1'
}

function showCurtain(title: string, reason: string): void {
  const again = create('button', { class: 'button primary', type: 'button', text: 'Try again' })
  again.addEventListener('click', () => location.reload())
  const curtain = create(
    'div',
    { class: 'curtain', role: 'alertdialog', 'aria-label': title },
    create('h2', { text: title }),
    create('p', { text: reason }),
    again,
  )
  document.body.append(curtain)
  again.focus()
}

/** Shows the state of the connection in the bar from now on. */
function showConnection(client: Client, bar: Bar): void {
  let resumed_until = 0
  let interrupted = false
  const show = () => {
    const resumed = client.status === 'online' && performance.now() < resumed_until
    bar.showStatus(resumed ? 'resumed' : client.status, client.latency)
  }
  client.onConnectionChange((status) => {
    if (status === 'reconnecting') interrupted = true
    if (status === 'online' && interrupted) {
      interrupted = false
      resumed_until = performance.now() + RESUMED_SHOWN_MS
      setTimeout(show, RESUMED_SHOWN_MS + 50)
    }
    if (status === 'closed') showCurtain('The game is over for now', 'The server has ended this connection.')
    show()
  })
  setInterval(show, PING_SHOWN_MS)
  show()
}

/**
 * Lets this tab's player in, joins the room of the address and hands both to `play`. What goes wrong is shown on the page,
 * with a way to try again.
 */
export async function startGame<R extends TypedRoom>(
  game: R['type'],
  play: (stage: Stage<R>) => void,
): Promise<void> {
  const key = roomKey()
  const scissors = watchSockets(window, () => performance.now())
  const toasts = new Toasts(document.body)
  const parts = { header: byId('bar', HTMLElement), footer: byId('dock', HTMLElement) }
  const bar = new Bar(parts, { game, room: key, scissors, copied: () => toasts.show('Link copied') })
  try {
    const login = new Login(game, sessionStorage)
    const { project_id, token, ws_url } = await login.session()
    let first: string | undefined = token
    const getToken = async () => {
      const unused = first
      first = undefined
      return unused ?? (await login.session()).token
    }
    const client = await connect(ws_url, { projectId: project_id, getToken })
    const room = await client.join<R>(game, { key })
    // A closed tab is gone at once; without the goodbye its seat would wait to be resumed.
    addEventListener('pagehide', () => client.close())
    addEventListener('pageshow', (event) => {
      if (event.persisted) location.reload()
    })
    showConnection(client, bar)
    const count = () => bar.showCount(room.members.length)
    room.onMembersChange(count)
    count()
    play({ client, room, bar, toasts })
  } catch (error) {
    bar.showStatus('closed')
    showCurtain('No way in', error instanceof Error ? error.message : String(error))
  }
}
