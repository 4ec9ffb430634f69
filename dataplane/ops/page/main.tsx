import { render } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { drain } from './actions.ts'
import { ActionDialog } from './dialog.tsx'
import { duration, fragmentOf } from './format.ts'
import { Lists } from './lists.tsx'
import { AdminModel, focusOn, ModelContext, useModel } from './model.ts'
import { DrainProgress, Glance, Nodes, Problems } from './overview.tsx'
import { RoomPanel } from './room.tsx'

/** The page of GET /admin. Whatever comes from the node goes into the page as text, never as markup. */
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

/** The widths at which a room covers the lists, as in narrow.css. */
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
      {node && (
        <>
          <p id="about" class="soft">
            {`version ${node.version} (${node.commit}), room code ${node.rooms_hash}, up ${duration(api.age(node.started_at))}${skew}`}
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
            <button
              type="button"
              class="danger"
              disabled={node.draining}
              onClick={() => model.act(drain(model))}
            >
              Drain…
            </button>
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
