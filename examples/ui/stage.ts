import { type Client, connect, type Room, type TypedRoom } from 'roomful/client'
import { Bar, cuttableSockets } from './bar.ts'
import { byId, create, Toasts } from './dom.ts'
import { chosenName, Login } from './login.ts'

const RESUMED_SHOWN_MS = 2500
const PING_SHOWN_MS = 1000

/** A running game: the room, and the parts that all pages share. */
export interface Stage<R extends TypedRoom> {
  /** The room's key. */
  key: string
  room: Room<R>
  toasts: Toasts
  /** The server's time now, in milliseconds since 1970. */
  serverTime: () => number
}

/** Returns the room's key from the address. If the address has no key, adds `lobby-1` to the address. */
function roomKey(): string {
  const address = new URL(location.href)
  const key = address.searchParams.get('room')?.trim().slice(0, 128)
  if (key) return key
  address.searchParams.set('room', 'lobby-1')
  history.replaceState(null, '', address)
  return 'lobby-1'
}

/** Covers a game that has ended, with a button to try again. Shows only the first reason. */
function showCurtain(title: string, reason: string): void {
  if (document.querySelector('.curtain')) return
  const again = create('button', { class: 'button primary', type: 'button', text: 'Try again' })
  again.addEventListener('click', () => location.reload())
  const words = [create('h2', { text: title }), create('p', { text: reason }), again]
  document.body.append(
    create('div', { class: 'curtain', role: 'alertdialog', 'aria-label': title }, ...words),
  )
  again.focus()
}

/** Shows the connection status from now on. */
function showConnection(client: Client, room: Pick<Room, 'status' | 'onLeave'>, bar: Bar): void {
  let interrupted = false
  let resumedUntil = 0
  const show = () => {
    const resumed = client.status === 'online' && performance.now() < resumedUntil
    bar.showStatus(resumed ? 'resumed' : client.status, client.latency)
  }
  client.onConnectionChange((status, error) => {
    // Status `joined`: the client has resumed its session. Otherwise it is joining again as a new member.
    if (status === 'online' && interrupted && room.status === 'joined') {
      resumedUntil = performance.now() + RESUMED_SHOWN_MS
      setTimeout(show, RESUMED_SHOWN_MS)
    }
    interrupted = status === 'reconnecting'
    if (status === 'closed' && error) showCurtain('Connection closed', error.message)
    show()
  })
  room.onLeave((reason, error) => {
    if (error) showCurtain('You have left the room', `${error.message} (${reason})`)
  })
  setInterval(show, PING_SHOWN_MS)
  show()
}

/**
 * Logs this tab's player in, joins the room of the address and passes it to `play`. Shows errors on the page, with a
 * button to try again.
 */
export async function startGame<R extends TypedRoom>(
  game: R['type'],
  play: (stage: Stage<R>) => void,
): Promise<void> {
  const key = roomKey()
  const scissors = cuttableSockets(() => performance.now())
  const toasts = new Toasts(document.body)
  const parts = { header: byId('bar', HTMLElement), footer: byId('dock', HTMLElement) }
  const bar = new Bar(parts, { game, room: key, scissors, copied: () => toasts.show('Link copied') })
  try {
    const login = new Login(game, { name: chosenName(), storage: sessionStorage })
    const { project_id: projectId, token, ws_url: wsUrl } = await login.session()
    const getToken = async () => (await login.session()).token
    const { WebSocket } = scissors
    const client = await connect(wsUrl, { projectId, token, getToken, WebSocket, resume: 'tab' })
    const room = await client.join<R>(game, { key })
    const count = () => bar.showCount(room.members.length)
    room.onMembersChange(count)
    count()
    showConnection(client, room, bar)
    play({ key, room, toasts, serverTime: () => client.serverTime() })
  } catch (error) {
    bar.showStatus('closed')
    showCurtain('Cannot join', error instanceof Error ? error.message : String(error))
  }
}
