import { render } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { Act, ActionDialog, drain } from './actions.tsx'
import { Lists, Nodes } from './lists.tsx'
import { AdminModel, focusOn, fragmentOf, ModelContext, pageOf, useModel } from './model.ts'
import { Figure, RoomPanel } from './room.tsx'
import { bytes, count, counted, duration, percent, timeOfDay } from './table.tsx'

/** The page of GET /admin. All data of the node goes into the page as text, never as markup. */
const root = document.getElementById('page')!
const model = new AdminModel(() => {
  document.body.classList.toggle('stale', model.status.mood === 'bad' && model.heard !== undefined)
  document.body.classList.toggle('with-room', model.heard !== undefined && model.room !== undefined)
  render(
    <ModelContext.Provider value={model}>
      <Page key={model} />
    </ModelContext.Provider>,
    root,
  )
})

/** The widths at which a room covers the lists, as in main.css. */
const narrow = matchMedia('(max-width: 860px)')

function Page() {
  const { heard, locked, failure, room, action, done } = useModel()
  const [isNarrow, setIsNarrow] = useState(narrow.matches)
  useEffect(() => narrow.addEventListener('change', ({ matches }) => setIsNarrow(matches)), [])
  return (
    <>
      <button type="button" id="skip" onClick={() => focusOn(heard ? 'node' : 'token')}>
        Skip to the node
      </button>
      <Header />
      {failure !== '' && (
        <p id="banner" role="alert">
          {failure}
        </p>
      )}
      <p id="done" role="status">
        {done}
      </p>
      {locked !== undefined && <Gate why={locked} />}
      {heard && (
        <main id="node" tabIndex={-1}>
          {/* The keyboard must not reach what the room covers. */}
          <div id="overview" inert={room !== undefined && isNarrow}>
            <DrainProgress />
            <Problems />
            <Glance />
            <Nodes />
            <Lists />
          </div>
          {room && <RoomPanel key={fragmentOf(room)} room={room} />}
        </main>
      )}
      {heard && action && <ActionDialog key={action.title} action={action} />}
    </>
  )
}

function Header() {
  const { heard, status, api } = useModel()
  const node = heard?.runtime.node
  const ahead = api.aheadMs > 0 ? 'behind' : 'ahead of'
  const skew =
    api.aheadMs === 0
      ? ''
      : `; this browser’s clock is ${duration(Math.abs(api.aheadMs))} ${ahead} the node’s`
  return (
    <header>
      <h1>roomful</h1>
      <p id="node-id" class="mono">
        {node?.node_id}
      </p>
      <p id="status" class={`pill ${status.mood}`} role="status">
        {status.word}
      </p>
      {heard && node && (
        <>
          <p id="about" class="soft">
            {`version ${node.version}${node.commit === 'unknown' ? '' : ` (${node.commit})`}, room code ${node.rooms_hash}, up ${duration(api.age(node.started_at))}${skew}`}
          </p>
          <div id="actions">
            <button
              type="button"
              disabled={node.draining}
              title={node.cordoned ? 'Take new rooms and sessions again' : 'Take no new rooms and sessions'}
              onClick={() => void model.tell(node.cordoned ? 'uncordon' : 'cordon')}
            >
              {node.cordoned ? 'Uncordon' : 'Cordon'}
            </button>
            <Act label="Drain…" look="danger" disabled={node.draining} action={drain(heard)} />
            <button type="button" onClick={() => model.lock('')}>
              Forget tokens
            </button>
          </div>
        </>
      )}
    </header>
  )
}

/** Asks for the token. */
function Gate({ why }: { why: string }) {
  const input = useRef<HTMLInputElement>(null)
  const submit = (event: Event) => {
    event.preventDefault()
    model.unlock(input.current!.value.trim())
    input.current!.value = ''
  }
  return (
    <main id="gate">
      <form id="token-form" class="card" onSubmit={submit}>
        <h2>Internal token</h2>
        <p class="soft">
          The node answers only with its <code>INTERNAL_TOKEN</code>, which stays in this tab.{' '}
          <code>roomful dev</code> and <code>npm run cluster</code> print a link that carries it. Elsewhere it
          is in the environment of the node.
        </p>
        <label for="token">Token</label>
        <input id="token" ref={input} type="password" autoComplete="off" required aria-describedby="why" />
        <p id="why" class="alarm" role="alert">
          {why}
        </p>
        <button type="submit" class="primary">
          Show the node
        </button>
      </form>
    </main>
  )
}

/** The figures of the node. */
function Glance() {
  const { node, totals } = useModel().heard!.runtime
  const { event_loop_utilisation: share, event_loop_delay_ms: delay, rss_bytes: memory } = node.load
  return (
    <dl id="glance" class="card">
      <Figure label="Rooms" value={count(totals.rooms)} />
      <Figure label="Members" value={count(totals.members)} />
      <Figure label="Sessions" value={count(totals.sessions)} />
      <Figure label="Event loop" value={percent(share)} />
      <Figure label="Longest delay" value={`${Math.round(delay)} ms`} />
      <Figure label="Memory" value={bytes(memory)} />
    </dl>
  )
}

/** Current problems of this node, and nodes that crashed or are overloaded. */
function Problems() {
  const { runtime, nodes } = useModel().heard!
  const others = nodes
    .filter(({ self }) => !self)
    .flatMap(({ node_id: id, alive, overloaded, not_ready: reasons }) => [
      ...(alive ? [] : [{ code: 'gone', detail: `${id} has ended or died` }]),
      ...(alive && overloaded ? [{ code: 'overloaded', detail: `${id} is overloaded` }] : []),
      ...reasons
        .filter(({ code }) => code !== 'draining' && code !== 'cordoned')
        .map(({ code, detail }) => ({ code, detail: `${id} is not ready: ${detail}` })),
    ])
  const problems = [...runtime.problems, ...others]
  if (problems.length === 0) return null
  return (
    <section id="problems" class="card" aria-labelledby="problems-title">
      <h2 id="problems-title">What is wrong now</h2>
      <ul>
        {problems.map(({ code, detail }) => (
          <li key={`${code} ${detail}`}>
            <span class="tag">{code}</span> {detail}
          </li>
        ))}
      </ul>
    </section>
  )
}

/** Progress of the drain, and where to continue when the process has ended. */
function DrainProgress() {
  const { drain, heard, status } = useModel()
  if (!drain || !heard) return null
  const { node, totals } = heard.runtime
  const ended = status.word === 'ended'
  const others = heard.nodes.filter((other) => other.alive && !other.self && pageOf(other))
  const moved = (noun: 'room' | 'session') => {
    const left = totals[`${noun}s`]
    const all = Math.max(drain[`${noun}s`], left)
    return `${count(all - left)} of ${counted(all, noun)} moved`
  }
  return (
    <section id="drain-progress" class="card" aria-labelledby="drain-title">
      <h2 id="drain-title">{`${node.node_id} ${ended ? 'has drained and ended' : 'is draining'}`}</h2>
      <p class="soft">
        {ended
          ? `When it last answered, at ${timeOfDay(heard.at)}, it still had ${counted(totals.rooms, 'room')} and ${counted(totals.sessions, 'session')}.`
          : `${moved('room')}, ${moved('session')} in ${duration(Date.now() - drain.at)}; then its process ends.`}
      </p>
      {ended && others.length > 0 && (
        <p>
          Continue at{' '}
          {others.map((other) => (
            <a key={other.node_id} href={pageOf(other)} class="mono">
              {other.node_id}
            </a>
          ))}
        </p>
      )}
    </section>
  )
}

document.addEventListener('keydown', (event) => {
  if (!model.heard || document.querySelector('dialog[open]')) return
  const typing = event.target instanceof HTMLInputElement
  if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault()
    model.focusSearch()
  } else if (event.key === 'Escape' && typing && model.search !== '') model.type('')
  else if (event.key === 'Escape' && model.room) model.close()
})
model.start()
