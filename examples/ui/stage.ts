import { type Client, connect, type Room, RoomfulError, type TypedRoom } from 'roomful/client'
import { Bar, cuttableSockets } from './bar.ts'
import { byId, create, Toasts } from './dom.ts'
import { nameOf } from './identity.ts'
import { Lobby } from './lobby.ts'
import { chosenName, Login } from './login.ts'

const RESUMED_SHOWN_MS = 2500
const PING_SHOWN_MS = 1000
const LEAVE_MS = 1000

/** A running game: the room, and the parts that all pages share. */
export interface Stage<R extends TypedRoom> {
  /** The room's key. */
  key: string
  room: Room<R>
  toasts: Toasts
  /** The server's time now, in milliseconds since 1970. */
  serverTime: () => number
}

/** Fills the lobby of a game: the ways to find a room. */
type Offer<R extends TypedRoom> = (lobby: Lobby<R>, client: Client) => void

/** Random keys are at least this long. */
const RANDOM_KEY = 20

/** Returns a name for a room: its key, or words if the key is random. */
export const nameOfRoom = (key: string): string => (key.length < RANDOM_KEY ? key : `The ${nameOf(key)}`)

/** Returns the room's key from the address, if it has one. */
const keyInAddress = (): string | undefined =>
  new URL(location.href).searchParams.get('room')?.trim().slice(0, 128) || undefined

function putInAddress(key: string): void {
  const address = new URL(location.href)
  address.searchParams.delete('lobby')
  address.searchParams.set('room', key)
  history.replaceState(null, '', address)
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

/** Shows the connection status from now on. Returns a function that takes the room after the join. */
function showConnection(client: Client, bar: Bar): (room: Pick<Room, 'status' | 'onLeave'>) => void {
  let joined: Pick<Room, 'status'> | undefined
  let interrupted = false
  let resumedUntil = 0
  const show = () => {
    const resumed = client.status === 'online' && performance.now() < resumedUntil
    bar.showStatus(resumed ? 'resumed' : client.status, client.latency)
  }
  client.onConnectionChange((status, error) => {
    // Status `rejoining`: the client has lost its session, and joins again as a new member.
    if (status === 'online' && interrupted && joined?.status !== 'rejoining') {
      resumedUntil = performance.now() + RESUMED_SHOWN_MS
      setTimeout(show, RESUMED_SHOWN_MS)
    }
    interrupted = status === 'reconnecting'
    if (status === 'closed' && error) showCurtain('Connection closed', error.message)
    show()
  })
  setInterval(show, PING_SHOWN_MS)
  show()
  return (room) => {
    joined = room
    room.onLeave((reason, error) => {
      if (error) showCurtain('You have left the room', `${error.message} (${reason})`)
    })
  }
}

/** Adds a button that leaves the room and returns to the lobby. */
function offerLobby(footer: HTMLElement, room: Pick<Room, 'leave'>): void {
  const back = create('button', { type: 'button', text: 'Other rooms' })
  back.addEventListener('click', async () => {
    // Without a connection, the page returns to the lobby, and the room gives up the seat later.
    await Promise.race([room.leave(), new Promise((resolve) => setTimeout(resolve, LEAVE_MS))])
    location.href = `${location.pathname}?lobby`
  })
  footer.append(back)
}

/** Joins a room to play. With `watch`, if the room has no free place, joins to watch. */
export const joinOrWatch = <R extends TypedRoom>(
  join: (target: { watch: boolean }) => Promise<Room<R>>,
  watch = true,
): Promise<Room<R>> =>
  join({ watch: false }).catch((error: unknown) => {
    if (watch && error instanceof RoomfulError && error.code === 'room_full') return join({ watch: true })
    throw error
  })

/** The parts of a game that not all games have. */
interface Options<R extends TypedRoom> {
  readonly title?: string
  readonly offer?: Offer<R>
  /** Joins a room for an address that names no room and not the lobby. */
  readonly enter?: (client: Client) => Promise<Room<R>>
  /** True: a player for whom the room of the address has no place watches. */
  readonly watch?: boolean
}

/**
 * Logs this tab's player in, joins the room of the address and passes it to `play`. If the address has no room, `enter` joins one, or the
 * player chooses one in the lobby that `offer` fills (with `enter`: at `?lobby`). Without `offer`, the room is `lobby-1`. Shows errors on the
 * page, with a button to try again.
 */
export async function startGame<R extends TypedRoom>(
  game: R['type'],
  play: (stage: Stage<R>) => void,
  { title = game, offer, enter, watch = false }: Options<R> = {},
): Promise<void> {
  const scissors = cuttableSockets(() => performance.now())
  const toasts = new Toasts(document.body)
  const parts = { header: byId('bar', HTMLElement), footer: byId('dock', HTMLElement) }
  const bar = new Bar(parts, { game, scissors, copied: () => toasts.show('Link copied') })
  try {
    const login = new Login(game, { name: chosenName(), storage: sessionStorage })
    const { project_id: projectId, token, ws_url: wsUrl } = await login.session()
    const getToken = async () => (await login.session()).token
    const { WebSocket } = scissors
    const client = await connect(wsUrl, { projectId, token, getToken, WebSocket, resume: 'tab' })
    const showRoom = showConnection(client, bar)
    const join = (): Promise<Room<R>> => {
      const key = keyInAddress()
      if (key || !offer)
        return joinOrWatch((target) => client.join<R>(game, { key: key ?? 'lobby-1' }, target), watch)
      if (enter && !new URL(location.href).searchParams.has('lobby')) return enter(client)
      const lobby = new Lobby<R>(parts.footer, game, title)
      offer(lobby, client)
      return lobby.joined
    }
    const room = await join()
    showRoom(room)
    const { key } = room
    putInAddress(key)
    bar.showRoom(room.code ?? nameOfRoom(key))
    const count = () => bar.showCount(room.players.length)
    room.onMembersChange(count)
    count()
    if (offer) offerLobby(parts.footer, room)
    play({ key, room, toasts, serverTime: () => client.serverTime() })
  } catch (error) {
    bar.showStatus('closed')
    showCurtain('Cannot join', error instanceof Error ? error.message : String(error))
  }
}
