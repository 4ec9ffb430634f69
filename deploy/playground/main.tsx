import { render } from 'preact'
import { useState } from 'preact/hooks'
import { Tree } from '../../dataplane/ops/page/tree.tsx'
import type { Json, JsonObject } from '../../shared/json.ts'
import { Fields, readFields } from './fields.tsx'
import { type Entry, Player } from './player.ts'
import type { MessageToSend, RoomsToPlay, RoomToPlay } from './rooms.ts'

/**
 * The page of GET /playground: two players of this machine in any room of `roomful dev`, side by side. Whatever comes from a room goes
 * into the page as text.
 */

const CUT_MS = 4000
const DELAYS_MS = [0, 50, 150, 500, 2000]

let known: RoomsToPlay | undefined
let notice = ''
let drawn = true
const draw = (): void => {
  if (drawn) requestAnimationFrame(show)
  drawn = false
}
const players = ['alice', 'bob'].map((name) => new Player(name, draw))

function show(): void {
  drawn = true
  render(<Page />, document.getElementById('page')!)
}

/** Asks what can be joined: at the start, and when someone comes back from an editor. */
async function learn(): Promise<void> {
  try {
    const response = await fetch('/dev/rooms')
    known = (await response.json()) as RoomsToPlay
  } catch {
    notice = 'roomful dev does not answer'
  }
  draw()
}

function Page() {
  const [chosen, setChosen] = useState(location.hash.slice(1))
  const [front, setFront] = useState(0)
  if (!known) return <p class="card">{notice || 'Asking for the room types …'}</p>
  const type = known.rooms.find((room) => room.type === chosen) ?? known.rooms[0]!
  // A player who has left keeps the log.
  const shown = players.filter((player) => here().includes(player) || player.log.length > 0)
  const choose = (name: string) => {
    history.replaceState(null, '', `#${name}`)
    setChosen(name)
  }
  return (
    <>
      <header>
        <svg viewBox="0 0 32 32" aria-hidden="true">
          <rect width="32" height="32" rx="9" fill="#6a5be8" />
          <circle cx="11.5" cy="13" r="4.5" fill="#ffd166" />
          <circle cx="21" cy="12" r="3.5" fill="#3ddc97" />
          <circle cx="18" cy="21" r="5" fill="#ff7b6b" />
        </svg>
        <h1>
          roomful <span class="soft">playground</span>
        </h1>
      </header>
      <main>
        <Choice types={known.rooms} type={type} onChoose={choose} />
        {shown.length > 1 && (
          <nav aria-label="Players">
            {players.map(({ name, status }, at) => (
              <button key={name} type="button" aria-pressed={at === front} onClick={() => setFront(at)}>
                <span class={`state ${status === 'online' ? 'serving' : ''}`}>{name}</span>
              </button>
            ))}
          </nav>
        )}
        <div id="players">
          {shown.map((player) => {
            const at = players.indexOf(player)
            const behind = shown.length > 1 && at !== front
            return <Pane key={player.name} player={player} type={type} at={at} behind={behind} />
          })}
        </div>
      </main>
    </>
  )
}

const here = () => players.filter(({ room, joining }) => room || joining)

/** Which room to join, and how. */
function Choice({
  types,
  type,
  onChoose,
}: {
  types: readonly RoomToPlay[]
  type: RoomToPlay
  onChoose: (type: string) => void
}) {
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    const form = new FormData(event.currentTarget as HTMLFormElement)
    const joins = (event.submitter as HTMLButtonElement).value
    try {
      const own = type.options ? readFields(form, type.options, 'options') : undefined
      const options = { ...(own as JsonObject), key: String(form.get('key')) }
      notice = ''
      for (const player of players)
        if (!player.room && !player.joining && (joins === 'both' || player.name === joins))
          void player.join(known!.ws_url, type.type, options)
    } catch (error) {
      notice = (error as Error).message
    }
    draw()
  }
  const busy = here().length > 0
  if (here().length === players.length)
    return (
      <p class="soft">
        Both players are in{' '}
        <b class="mono">{players.find(({ room }) => room)?.room?.id ?? `a room of ${type.type}`}</b>
        {notice && `. ${notice}`}
      </p>
    )
  return (
    <form id="choice" class="row card" onSubmit={submit}>
      <p>
        <b>Play any room by hand.</b> alice and bob are two players on this machine. You see the state, the
        messages and the patches of each.
      </p>
      <label>
        <span>room type</span>
        <select value={type.type} disabled={busy} onChange={(event) => onChoose(event.currentTarget.value)}>
          {types.map((one) => (
            <option key={one.type}>{one.type}</option>
          ))}
        </select>
      </label>
      <label>
        <span>key</span>
        <input name="key" required maxLength={128} defaultValue="default" spellcheck={false} />
      </label>
      {type.options && <Fields key={type.type} schema={type.options} name="options" />}
      {!busy && (
        <button type="submit" class="primary" value="both">
          Join as both
        </button>
      )}
      {players
        .filter((player) => !here().includes(player))
        .map(({ name }) => (
          <button key={name} type="submit" value={name}>
            {`Join as ${name}`}
          </button>
        ))}
      {notice && (
        <p role="alert" class="alarm">
          {notice}
        </p>
      )}
    </form>
  )
}

async function killOwner(room: string): Promise<void> {
  const response = await fetch(`/dev/kill?room=${encodeURIComponent(room)}`, { method: 'POST' })
  notice = (await response.json()).detail
  draw()
}

const MOODS: Record<string, string> = {
  online: 'good',
  connecting: 'warn',
  reconnecting: 'warn',
  closed: 'bad',
}

interface PaneProps {
  player: Player
  type: RoomToPlay
  at: number
  /** True if a phone shows the other player. */
  behind: boolean
}

function Pane({ player, type, at, behind }: PaneProps) {
  const { room, status, latency } = player
  const title = `player-${at}`
  return (
    <section class={`card player ${behind ? 'behind' : ''}`} aria-labelledby={title}>
      <div class="row head">
        <h2 id={title}>{player.name}</h2>
        <span class={`pill ${MOODS[status] ?? ''}`} role="status">
          {status}
        </span>
        <span class="soft">
          {[player.node, latency !== undefined && `${latency} ms`].filter(Boolean).join(' · ')}
        </span>
        <span class="spring" />
        {room && (
          <button type="button" onClick={() => player.leave()}>
            Leave
          </button>
        )}
      </div>
      {room && <InRoom player={player} type={type} at={at} />}
      <Log player={player} at={at} />
    </section>
  )
}

function InRoom({ player, type, at }: { player: Player; type: RoomToPlay; at: number }) {
  const { line } = player
  const room = player.room!
  return (
    <>
      <ul class="members" aria-label="Members">
        {room.members.map(({ id, sub, connected }) => (
          <li key={id} class={`state ${connected ? 'serving' : 'soft'}`} title={id}>
            {sub ?? id}
            {!connected && ' (away)'}
          </li>
        ))}
      </ul>
      <h3 id={`state-${at}`}>State</h3>
      <Tree value={room.state as Json} title={`state-${at}`} />
      <Messages player={player} messages={type.messages} />
      <div class="row head">
        <label>
          <span>delay</span>
          <select
            onChange={({ currentTarget: { value } }) => {
              line.delayMs = Number(value)
            }}
          >
            {DELAYS_MS.map((ms) => (
              <option key={ms} value={ms} selected={ms === line.delayMs}>{`${ms} ms`}</option>
            ))}
          </select>
        </label>
        <button type="button" onClick={() => line.cut(CUT_MS)}>
          {`Cut for ${CUT_MS / 1000} s`}
        </button>
        {known?.kills && (
          <button type="button" class="danger" onClick={() => void killOwner(room.id)}>
            Kill the owner
          </button>
        )}
      </div>
    </>
  )
}

/** A form for each message type, one at a time. */
function Messages({ player, messages }: { player: Player; messages: readonly MessageToSend[] }) {
  const [chosen, setChosen] = useState('')
  const [problem, setProblem] = useState('')
  const message = messages.find(({ name }) => name === chosen) ?? messages[0]
  if (!message) return <p class="soft">Its members send no messages.</p>
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    try {
      const form = new FormData(event.currentTarget as HTMLFormElement)
      void player.send(message.name, readFields(form, message.data, 'data') ?? null, message.replies)
      setProblem('')
    } catch (error) {
      setProblem((error as Error).message)
    }
  }
  return (
    <form class="row" noValidate onSubmit={submit}>
      <label>
        <span>message</span>
        <select value={message.name} onChange={(event) => setChosen(event.currentTarget.value)}>
          {messages.map(({ name }) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <Fields key={message.name} schema={message.data} name="data" />
      <button type="submit" class="primary">
        {message.replies ? 'Request' : 'Send'}
      </button>
      {problem && (
        <p role="alert" class="alarm">
          {problem}
        </p>
      )}
    </form>
  )
}

/** What a player has seen, the latest first; it can be held while one reads. */
function Log({ player, at }: { player: Player; at: number }) {
  const [held, setHeld] = useState<readonly Entry[]>()
  const entries = held ?? player.log
  return (
    <>
      <div class="row head">
        <h3 id={`log-${at}`}>Patches and events</h3>
        <span class="spring" />
        <button
          type="button"
          aria-pressed={held !== undefined}
          onClick={() => setHeld(held ? undefined : player.log)}
        >
          Hold
        </button>
        <button type="button" onClick={() => player.clear()}>
          Clear
        </button>
      </div>
      {entries.length === 0 && <p class="soft">Nothing since you cleared it.</p>}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and has to by keys too */}
      <ol class="log" aria-labelledby={`log-${at}`} tabIndex={0} hidden={entries.length === 0}>
        {entries.map(({ id, seq, kind, what, data }) => (
          <li key={id} class={kind}>
            <span title="seq">{seq}</span>
            <span class="kind">{kind}</span>
            <span class="what">
              {kind !== 'patch' || what !== 'patch' ? <b>{what}</b> : null} {data && <code>{data}</code>}
            </span>
          </li>
        ))}
      </ol>
    </>
  )
}

addEventListener('focus', () => void learn())
void learn()
