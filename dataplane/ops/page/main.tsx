import { render } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { counted, duration, fragmentOf } from './format.ts'
import { Lists, listOrders } from './lists.tsx'
import { AdminModel, focusOn, ModelContext, useModel } from './model.ts'
import { DrainProgress, Glance, Nodes, nodeOrder } from './overview.tsx'
import { RoomPanel } from './room.tsx'

/** The page of GET /admin. Whatever comes from the node goes into the page as text, never as markup. */
const lists = listOrders()
const nodes = nodeOrder()
const root = document.getElementById('page')!
const model = new AdminModel({
  orders: lists,
  show: () =>
    render(
      <ModelContext.Provider value={model}>
        <Page key={model} />
      </ModelContext.Provider>,
      root,
    ),
})

function Page() {
  const { heard, locked, failure, announcement, room, stale } = useModel()
  const [asksToDrain, setAsksToDrain] = useState(false)
  useLayoutEffect(() => {
    document.body.classList.toggle('stale', stale)
    document.body.classList.toggle('with-room', heard !== undefined && room !== undefined)
  })
  return (
    <>
      <button type="button" id="skip" onClick={() => focusOn(heard ? 'node' : 'token')}>
        Skip to the node
      </button>
      <Header onDrain={() => setAsksToDrain(true)} />
      {failure !== '' && (
        <p id="banner" role="alert">
          {failure}
        </p>
      )}
      <p id="announcer" class="unseen" aria-live="polite">
        {announcement}
      </p>
      {locked !== undefined && <Gate why={locked} />}
      {heard && <NodeView />}
      {heard && asksToDrain && <DrainDialog onClose={() => setAsksToDrain(false)} />}
    </>
  )
}

function Header({ onDrain }: { onDrain: () => void }) {
  const { heard, status, api } = useModel()
  const node = heard?.runtime.node
  const skew =
    api.aheadMs === 0
      ? ''
      : `; this browser’s clock is ${duration(Math.abs(api.aheadMs))} ${api.aheadMs > 0 ? 'behind' : 'ahead of'} the node’s`
  return (
    <header>
      <h1>roomful</h1>
      <p id="node-id" class="mono">
        {node?.node_id}
      </p>
      <p id="status" class={`pill ${status.mood}`} role="status">
        {status.word}
      </p>
      <p id="about" class="soft">
        {node && `version ${node.version}, up ${duration(api.age(node.started_at))}${skew}`}
      </p>
      {node && (
        <div id="actions">
          <button type="button" class="danger" disabled={node.draining} onClick={onDrain}>
            Drain…
          </button>
          <button type="button" onClick={() => model.lock('')}>
            Forget token
          </button>
        </div>
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
        <input
          id="token"
          ref={input}
          type="password"
          autoComplete="off"
          spellcheck={false}
          required
          aria-describedby="token-error"
        />
        <p id="token-error" class="alarm" role="alert">
          {why}
        </p>
        <button type="submit" class="primary">
          Show the node
        </button>
      </form>
    </main>
  )
}

/** Where the room covers the lists, as narrow.css says. */
const covers = matchMedia('(max-width: 860px)')

function NodeView() {
  const { room } = useModel()
  const [isCovered, setIsCovered] = useState(covers.matches)
  useEffect(() => {
    covers.addEventListener('change', ({ matches }) => setIsCovered(matches))
  }, [])
  return (
    <main id="node" tabIndex={-1}>
      {/* What the room covers cannot be reached with the keyboard either. */}
      <div id="overview" inert={room !== undefined && isCovered}>
        <DrainProgress />
        <Glance />
        <Nodes order={nodes} />
        <Lists orders={lists} />
        <p id="keys" class="soft">
          <kbd>/</kbd> search <kbd>↑</kbd> <kbd>↓</kbd> along a list <kbd>Enter</kbd> open <kbd>Esc</kbd>{' '}
          close
        </p>
      </div>
      {room && <RoomPanel key={fragmentOf(room)} room={room} />}
    </main>
  )
}

/** Says what a drain would do, as things are now, before it does anything. */
function DrainDialog({ onClose }: { onClose: () => void }) {
  const { node, totals } = model.heard!.runtime
  const others = model.heard!.nodes.filter((other) => other.alive && !other.self && !other.draining)
  const dialog = useRef<HTMLDialogElement>(null)
  const [isSure, setIsSure] = useState(false)
  useLayoutEffect(() => {
    dialog.current!.showModal()
    dialog.current!.querySelector('button')!.focus()
  }, [])
  // Another person was faster.
  useEffect(() => {
    if (node.draining) dialog.current!.close()
  })
  const closed = () => {
    if (dialog.current!.returnValue === 'drain') void model.startDrain()
    onClose()
  }
  return (
    <dialog
      ref={dialog}
      aria-labelledby="drain-heading"
      aria-describedby="drain-what drain-where"
      onClose={closed}
    >
      <form method="dialog">
        <h2 id="drain-heading">{`Drain ${node.node_id}?`}</h2>
        <p id="drain-what">
          {`It takes no new clients, hands over its ${counted(totals.rooms, 'room')}, moves its ${counted(totals.sessions, 'session')}, and then its process ends. This cannot be called back.`}
        </p>
        <p id="drain-where" class={others.length > 0 ? 'soft' : 'alarm'}>
          {others.length > 0
            ? `${counted(others.length, 'other node')} can take them; players stay in their rooms.`
            : 'No other node can take them: players wait until one is there, and rooms that are kept in no store are lost.'}
        </p>
        <label>
          <input type="checkbox" checked={isSure} onChange={() => setIsSure(!isSure)} />{' '}
          {`Yes, drain ${node.node_id}`}
        </label>
        <div class="buttons">
          <button type="submit" value="cancel">
            Cancel
          </button>
          <button type="submit" value="drain" id="drain-now" class="danger" disabled={!isSure}>
            Drain the node
          </button>
        </div>
      </form>
    </dialog>
  )
}

document.addEventListener('keydown', (event) => {
  if (!model.heard || document.querySelector('dialog[open]')) return
  const typing = event.target instanceof HTMLInputElement
  if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault()
    focusOn('search')
  } else if (event.key === 'Escape' && typing && model.search !== '') {
    model.type('')
  } else if (event.key === 'Escape' && model.room) model.close()
})
model.start()
