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
  if (!known) return <p class="card">{notice || 'Asking for the room types …'}</p>
  const type = known.rooms.find((room) => room.type === chosen) ?? known.rooms[0]!
  const choose = (name: string) => {
    history.replaceState(null, '', `#${name}`)
    setChosen(name)
  }
  return (
    <>
      <header>
        <h1>
          roomful <span class="soft">playground</span>
        </h1>
      </header>
      <main>
        <Choice types={known.rooms} type={type} onChoose={choose} />
        <div id="players">
          {players.map((player, at) => (
            <Pane key={player.name} player={player} type={type} at={at} />
          ))}
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
  return (
    <form id="choice" class="row card" onSubmit={submit}>
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

function Pane({ player, type, at }: { player: Player; type: RoomToPlay; at: number }) {
  const { room, status, latency, line } = player
  const title = `player-${at}`
  return (
    <section class="card player" aria-labelledby={title}>
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
      <div class="row head">
        <label>
          <span>delay</span>
          <select
            onChange={({ currentTarget: { value } }) => {
              line.delayMs = Number(value)
            }}
          >
            {DELAYS_MS.map((ms) => (
              <option key={ms} value={ms}>{`${ms} ms`}</option>
            ))}
          </select>
        </label>
        <button type="button" disabled={!room} onClick={() => line.cut(CUT_MS)}>
          {`Cut for ${CUT_MS / 1000} s`}
        </button>
        {known?.kills && (
          <button type="button" class="danger" disabled={!room} onClick={() => void killOwner(room!.id)}>
            Kill the owner
          </button>
        )}
      </div>
      {room ? <InRoom player={player} type={type} at={at} /> : <p class="soft">Not in a room.</p>}
      <Log player={player} at={at} />
    </section>
  )
}

function InRoom({ player, type, at }: { player: Player; type: RoomToPlay; at: number }) {
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
      <Messages player={player} messages={type.messages} />
      <h3 id={`state-${at}`}>State</h3>
      <Tree value={room.state as Json} title={`state-${at}`} />
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
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and has to by keys too */}
      <ol class="log" aria-labelledby={`log-${at}`} tabIndex={0}>
        {(held ?? player.log).map(({ id, seq, kind, what, data }) => (
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
