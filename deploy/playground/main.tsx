import { type ComponentChildren, render } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { ListedRoom } from '../../client/index.ts'
import type { Json, JsonObject } from '../../shared/json.ts'
import { Tree } from '../admin-page/tree.tsx'
import type { JsonSchema, MessageToSend, RoomsToPlay, RoomToPlay, ShownNotice } from '../cli/dev-routes.ts'
import { compare } from './compare.ts'
import { type Entry, Player, watchList } from './player.ts'

/**
 * Page of GET /playground: two players of this machine in any room of `roomful dev`, side by side. Text of a room is inserted only as text,
 * never as HTML.
 */

const CUT_MS = 4000
/** Time between two requests for notices. */
const LOOK_MS = 1000
const DELAYS = [0, 50, 150, 500, 2000].map((ms) => `${ms} ms`)
const MOODS: Record<string, string> = {
  online: 'good',
  connecting: 'warn',
  reconnecting: 'warn',
  closed: 'bad',
}

/** State of the page except the players. */
const page: { rooms?: RoomsToPlay; notice: string; drawn: boolean } = { notice: '', drawn: true }
const draw = (): void => {
  if (page.drawn) requestAnimationFrame(show)
  page.drawn = false
}
const players = ['alice', 'bob'].map((name) => new Player(name, draw))
const isHere = ({ room, joining }: Player): boolean => room !== undefined || joining

function show(): void {
  page.drawn = true
  render(<Page />, document.getElementById('page')!)
}

/** Requests the rooms that can be joined, at the start and when the user returns from an editor. */
async function learn(): Promise<void> {
  try {
    page.rooms = (await (await fetch('/dev/rooms')).json()) as RoomsToPlay
  } catch {
    page.notice = 'roomful dev does not answer'
  }
  draw()
}

/** Runs the action of a form, and returns the error. */
function attempt(event: SubmitEvent, work: (form: FormData) => void): string {
  event.preventDefault()
  try {
    work(new FormData(event.currentTarget as HTMLFormElement, event.submitter))
    return ''
  } catch (error) {
    return (error as Error).message
  }
}

const Alarm = ({ text }: { text: string }) =>
  text ? (
    <p role="alert" class="alarm">
      {text}
    </p>
  ) : null

function Page() {
  const [chosen, setChosen] = useState(location.hash.slice(1))
  const [front, setFront] = useState(0)
  if (!page.rooms) return <p class="card">{page.notice || 'Asking for the room types …'}</p>
  const { rooms } = page.rooms
  const type = rooms.find((room) => room.type === chosen) ?? rooms[0]!
  // A player who has left keeps the log.
  const shown = players.filter((player) => isHere(player) || player.log.length > 0)
  const inside = players.find(({ room }) => room)?.room?.id
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
        <Choice types={rooms.map((room) => room.type)} type={type} onChoose={choose} />
        {shown.length > 1 && (
          <nav aria-label="Players">
            {players.map(({ name, status }, at) => (
              <button key={name} type="button" aria-pressed={at === front} onClick={() => setFront(at)}>
                <span class={`state ${status === 'online' ? 'serving' : ''}`}>{name}</span>
              </button>
            ))}
          </nav>
        )}
        <State />
        <div id="players">
          {shown.map((player) => {
            const behind = shown.length > 1 && player !== players[front]
            return <Pane key={player.name} player={player} type={type} behind={behind} />
          })}
        </div>
        {inside !== undefined && (type.calls.length > 0 || type.notifies) && (
          <Backend key={inside} room={inside} calls={type.calls} />
        )}
      </main>
    </>
  )
}

/** Form with the room and the options of a join. */
function Choice(props: { types: readonly string[]; type: RoomToPlay; onChoose: (type: string) => void }) {
  const { type, options, listed, watched } = props.type
  const busy = players.some(isHere)
  const inside = players.find(({ room }) => room)?.room?.id ?? `a room of ${type}`
  const away = players.filter((player) => !isHere(player))
  const submit = (event: SubmitEvent) => {
    page.notice = attempt(event, (form) => {
      const own = options ? (readFields(form, options, 'options') as JsonObject) : {}
      const all = { ...own, key: String(form.get('listed') ?? form.get('key')) }
      const only = form.get('as')
      const how = { data: dataOf(String(form.get('player'))), watch: form.has('watch') }
      for (const player of away)
        if (only === null || player.name === only) void player.join(page.rooms!.ws_url, type, all, how)
    })
    draw()
  }
  if (away.length === 0)
    return (
      <p class="soft">
        Both players are in <b class="mono">{inside}</b>
        {page.notice && `. ${page.notice}`}
      </p>
    )
  return (
    <form id="choice" class="row card" onSubmit={submit}>
      <p>
        <b>Play any room by hand.</b> alice and bob are two players on this machine. You see the state, the
        messages and the patches of each.
      </p>
      <Select label="room type" of={props.types} value={type} disabled={busy} onChoose={props.onChoose} />
      <Labelled label="key">
        <input name="key" required maxLength={128} defaultValue="default" spellcheck={false} />
      </Labelled>
      <Labelled label="member.data">
        <input name="player" placeholder='{"elo":1200}' spellcheck={false} />
      </Labelled>
      {options && <Fields key={type} schema={options} name="options" />}
      {watched && (
        <Labelled label="watch">
          <input name="watch" type="checkbox" />
        </Labelled>
      )}
      {!busy && (
        <button type="submit" class="primary">
          Join as both
        </button>
      )}
      {away.map(({ name }) => (
        <button key={name} type="submit" name="as" value={name}>
          {`Join as ${name}`}
        </button>
      ))}
      <Alarm text={page.notice} />
      {listed && !busy && <List key={type} type={type} watched={watched} />}
    </form>
  )
}

/** Returns the data of a player. Throws if the text is no JSON object. */
function dataOf(text: string): JsonObject | undefined {
  if (text.trim() === '') return undefined
  try {
    const data: unknown = JSON.parse(text)
    if (typeof data === 'object' && data !== null && !Array.isArray(data)) return data as JsonObject
  } catch {
    // Not JSON: the same answer as for another value.
  }
  throw new Error(`member.data is ${text}: write a JSON object such as {"elo":1200}, or nothing`)
}

/** List of the rooms of a type, with their listing data. A click joins both players. */
function List({ type, watched }: { type: string; watched: boolean }) {
  const [rooms, setRooms] = useState<readonly ListedRoom[]>()
  const [problem, setProblem] = useState('')
  useEffect(() => watchList(page.rooms!.ws_url, type, setRooms, (error) => setProblem(error.message)), [type])
  if (problem) return <Alarm text={`No list of rooms: ${problem}`} />
  if (!rooms?.length)
    return <p class="soft">{rooms ? `No room of ${type} is listed.` : 'Loading the list …'}</p>
  return (
    <ul class="rooms" aria-label={`Rooms of ${type}`}>
      {rooms.map(({ key, players, maxPlayers, spectators, reserved, data }) => (
        <li key={key}>
          <button
            type="submit"
            name="listed"
            value={key}
            disabled={!watched && players + reserved >= (maxPlayers ?? Infinity)}
          >
            Join
          </button>
          <b class="mono">{key}</b>
          <span class="soft">
            {`${players} of ${maxPlayers ?? '∞'}${watched ? `, ${spectators} watching` : ''}`}
          </span>
          <code>{JSON.stringify(data)}</code>
        </li>
      ))}
    </ul>
  )
}

/** The state of the room. If the players see different states, the differences are marked. */
function State() {
  const views = players.flatMap(({ name, room }) =>
    room ? [{ player: name, state: room.state as Json }] : [],
  )
  if (views.length === 0) return null
  const { state, marks } = compare(views)
  return (
    <section class="card player" aria-labelledby="state">
      <div class="row head">
        <h2 id="state">State</h2>
        <span class="soft">
          {marks.size > 0
            ? `alice and bob see different states: ${marks.size === 1 ? 'one difference is' : `${marks.size} differences are`} marked`
            : views.length > 1 && 'alice and bob see the same'}
        </span>
      </div>
      <Tree value={state} title="state" marks={marks} named={withNames} />
    </section>
  )
}

/** Returns a text with the name of each member beside its id, behind the quotes of JSON. */
function withNames(text: string): string {
  const members = players.find(({ room }) => room)?.room?.members ?? []
  return members.reduce(
    (said, { id, sub }) =>
      sub === null ? said : said.replaceAll(new RegExp(`${id}"?`, 'g'), (found) => `${found} (${sub})`),
    text,
  )
}

function Pane({ player, type, behind }: { player: Player; type: RoomToPlay; behind: boolean }) {
  const { name, room, status, latency, node } = player
  return (
    <section class={`card player ${behind ? 'behind' : ''}`} aria-labelledby={name}>
      <div class="row head">
        <h2 id={name}>{name}</h2>
        <span class={`pill ${MOODS[status] ?? ''}`} role="status">
          {status}
        </span>
        <span class="soft">
          {[node, latency !== undefined && `${latency} ms`].filter(Boolean).join(' · ')}
        </span>
        {room?.spectator && <span class="pill">watches</span>}
        <span class="spring" />
        {room && (
          <button type="button" onClick={() => player.leave()}>
            Leave
          </button>
        )}
      </div>
      {room && (
        <>
          <ul class="members" aria-label="Members">
            {room.members.map(({ id, sub, connected, spectator }) => (
              <li key={id} class={`state ${connected ? 'serving' : 'soft'}`}>
                {sub ?? 'no sub'} <code class="soft">{id}</code>
                {!connected && ' (away)'}
                {spectator && ' (watches)'}
              </li>
            ))}
            {room.spectators > 0 && <li class="soft">{`${room.spectators} watching`}</li>}
          </ul>
          <Sending
            what="message"
            types={type.messages}
            nothing="Its members send no messages."
            send={(name, data, replies) => void player.send(name, data, replies)}
          />
          <Network player={player} room={room.id} />
        </>
      )}
      <Log player={player} />
    </section>
  )
}

/** Faults of the player's network, and of the room's owner. */
function Network({ player: { line }, room }: { player: Player; room: string }) {
  const setDelay = (text: string) => {
    line.delayMs = Number.parseInt(text, 10)
    draw()
  }
  const kill = async () => {
    const response = await fetch(`/dev/kill?room=${encodeURIComponent(room)}`, { method: 'POST' })
    page.notice = (await response.json()).detail
    draw()
  }
  return (
    <div class="row head">
      <Select label="delay" of={DELAYS} value={`${line.delayMs} ms`} onChoose={setDelay} />
      <button type="button" onClick={() => line.cut(CUT_MS)}>
        {`Cut for ${CUT_MS / 1000} s`}
      </button>
      {page.rooms?.kills && (
        <button type="button" class="danger" onClick={() => void kill()}>
          Kill the owner
        </button>
      )}
    </div>
  )
}

interface SendingProps {
  readonly what: string
  readonly types: readonly MessageToSend[]
  /** Text if there are no types. */
  readonly nothing: string
  readonly send: (name: string, data: Json, replies: boolean) => void
}

/** Forms of the message types or calls, one at a time. */
function Sending({ what, types, nothing, send }: SendingProps) {
  const [chosen, setChosen] = useState('')
  const [problem, setProblem] = useState('')
  const message = types.find(({ name }) => name === chosen) ?? types[0]
  if (!message) return <p class="soft">{nothing}</p>
  const { name, data, replies } = message
  const submit = (event: SubmitEvent) =>
    setProblem(attempt(event, (form) => send(name, readFields(form, data, 'data') ?? null, replies)))
  return (
    <form class="row" noValidate onSubmit={submit}>
      <Select label={what} of={types.map((one) => one.name)} value={name} onChoose={setChosen} />
      <Fields key={name} schema={data} name="data" />
      <button type="submit" class="primary">
        {what === 'call' ? 'Call' : replies ? 'Request' : 'Send'}
      </button>
      <Alarm text={problem} />
    </form>
  )
}

/** The backend of the room: forms of its calls, with the last reply, and the notices that the room sends to it. */
function Backend({ room, calls }: { room: string; calls: readonly MessageToSend[] }) {
  const [reply, setReply] = useState('')
  const [notices, setNotices] = useState<readonly ShownNotice[]>([])
  useEffect(() => {
    const look = () =>
      fetch(`/dev/notices?room=${encodeURIComponent(room)}`)
        .then((response) => response.json())
        .then(
          (answer) => setNotices(answer.notices),
          () => undefined,
        )
    void look()
    const timer = setInterval(look, LOOK_MS)
    return () => clearInterval(timer)
  }, [room])
  const call = async (name: string, data: Json) => {
    const body = JSON.stringify({ room, name, data })
    const response = await fetch('/dev/call', { method: 'POST', body })
    const answer = await response.json()
    setReply(response.ok ? `${name} replied ${JSON.stringify(answer.reply)}` : answer.detail)
  }
  return (
    <section class="card player" aria-labelledby="backend">
      <h2 id="backend">Backend</h2>
      <Sending
        what="call"
        types={calls}
        nothing="The room has no calls."
        send={(name, data) => void call(name, data).catch(({ message }: Error) => setReply(message))}
      />
      {reply && (
        <p role="status">
          <code>{reply}</code>
        </p>
      )}
      {notices.length > 0 && (
        <>
          <h3 id="notices">Notices</h3>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and has to by keys too */}
          <ol class="log" aria-labelledby="notices" tabIndex={0}>
            {notices.map(({ id, type, data, answer }) => (
              <li key={id} class="notice">
                <span class="what">
                  <b>{type}</b> <code>{withNames(JSON.stringify(data))}</code>
                </span>
                <span class="soft">{answer}</span>
              </li>
            ))}
          </ol>
        </>
      )}
    </section>
  )
}

/** Log of a player, latest entry first. `Hold` pauses it for reading. */
function Log({ player }: { player: Player }) {
  const [held, setHeld] = useState<readonly Entry[]>()
  const entries = held ?? player.log
  const title = `${player.name}-log`
  return (
    <>
      <div class="row head">
        <h3 id={title}>Patches and events</h3>
        <span class="spring" />
        <button type="button" aria-pressed={!!held} onClick={() => setHeld(held ? undefined : player.log)}>
          Hold
        </button>
        <button type="button" onClick={() => player.clear()}>
          Clear
        </button>
      </div>
      {entries.length === 0 && <p class="soft">Nothing since you cleared it.</p>}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and has to by keys too */}
      <ol class="log" aria-labelledby={title} tabIndex={0} hidden={entries.length === 0}>
        {entries.map(({ id, seq, kind, what, data }) => (
          <li key={id} class={kind}>
            <span title="seq">{seq}</span>
            <span class="kind">{kind}</span>
            <span class="what">
              {what !== 'patch' && <b>{what}</b>} {data && <code>{withNames(data)}</code>}
            </span>
          </li>
        ))}
      </ol>
    </>
  )
}

/** An input with its label before it. */
const Labelled = ({ label, children }: { label: ComponentChildren; children: ComponentChildren }) => (
  // biome-ignore lint/a11y/noLabelWithoutControl: the child is one
  <label>
    <span>{label}</span>
    {children}
  </label>
)

/** A choice between texts. */
const Select = (props: {
  readonly label: string
  readonly of: readonly string[]
  readonly value: string
  readonly disabled?: boolean
  readonly onChoose: (value: string) => void
}) => (
  <Labelled label={props.label}>
    <select
      value={props.value}
      disabled={props.disabled ?? false}
      onChange={(event) => props.onChoose(event.currentTarget.value)}
    >
      {props.of.map((one) => (
        <option key={one}>{one}</option>
      ))}
    </select>
  </Labelled>
)

interface FieldProps {
  /** Absent: any JSON. */
  readonly schema: JsonSchema | undefined
  readonly name: string
  readonly path?: string
  readonly optional?: boolean
}

/** Inputs for a value of this schema, each named by its path. Parts without a schema are entered as JSON text. */
function Fields({ schema = {}, name, path = name, optional = false }: FieldProps) {
  const { type, properties, required = [] } = schema
  if (properties)
    return Object.entries(properties).map(([key, part]) => {
      const needed = !optional && required.includes(key)
      return <Fields key={key} schema={part} name={key} path={`${path}/${key}`} optional={!needed} />
    })
  if (type === 'null') return null
  return (
    <Labelled label={[name, optional && <span class="soft"> optional</span>]}>
      {input(schema, path, optional)}
    </Labelled>
  )
}

function input(schema: JsonSchema, path: string, optional: boolean) {
  const { type, default: given, minimum, maximum, maxLength } = schema
  const choices = choicesOf(schema)
  const text =
    given === undefined ? '' : type === 'string' && !choices ? String(given) : JSON.stringify(given)
  if (choices)
    return (
      <select name={path} defaultValue={text}>
        {(optional ? ['', ...choices.map(textOf)] : choices.map(textOf)).map((choice) => (
          <option key={choice} value={choice}>
            {choice && String(JSON.parse(choice))}
          </option>
        ))}
      </select>
    )
  const common = { name: path, defaultValue: text, spellcheck: false }
  if (type === 'string') return <input {...common} maxLength={maxLength} />
  const step = type === 'integer' ? 1 : 'any'
  if (type === 'integer' || type === 'number')
    return <input {...common} type="number" step={step} min={minimum} max={maximum} required={!optional} />
  return <textarea {...common} rows={2} placeholder={type === 'array' ? '[ ]' : 'JSON'} />
}

const textOf = (value: Json): string => JSON.stringify(value)

const choicesOf = ({ type, enum: words, const: only }: JsonSchema): readonly Json[] | undefined =>
  words ?? (only !== undefined ? [only] : type === 'boolean' ? [false, true] : undefined)

/** Returns the value in the `Fields` of a form, without empty optional parts. Throws if a text is not JSON. */
function readFields(form: FormData, schema: JsonSchema | undefined, path: string): Json | undefined {
  if (schema?.properties) {
    const parts = Object.entries(schema.properties).map(([key, part]) => [
      key,
      readFields(form, part, `${path}/${key}`),
    ])
    return Object.fromEntries(parts.filter(([, value]) => value !== undefined)) as JsonObject
  }
  if (schema?.type === 'null') return null
  const text = String(form.get(path) ?? '')
  if (schema?.type === 'string' && !choicesOf(schema)) return text
  if (text === '') return undefined
  try {
    return JSON.parse(text) as Json
  } catch {
    throw new Error(`${path} is no JSON: ${text}`)
  }
}

addEventListener('focus', () => void learn())
void learn()
