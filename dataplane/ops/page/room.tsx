import { useLayoutEffect, useRef } from 'preact/hooks'
import type { RoomEventDescription } from '../../descriptions.ts'
import type { RoomDescription, RoomWhereabouts } from './api.ts'
import { count, counted, pageOf, type RoomName, timeOfDay } from './format.ts'
import { useModel } from './model.ts'
import { Figure } from './overview.tsx'
import { Tree } from './tree.tsx'

/** Data of an event that is longer than this is folded. */
const LONG_DATA = 90

/** The room that is open beside the lists: its members, state and last events, or where else it is. Its name is in the page's address. */
export function RoomPanel({ room }: { room: RoomName }) {
  const model = useModel()
  const { answer } = model
  return (
    <aside id="room" class="card" aria-labelledby="room-title">
      <div class="room-head">
        <h2 id="room-title" class="mono" tabIndex={-1}>
          {room.room_id}
        </h2>
        <p class="mono soft">{room.project_id}</p>
        <button type="button" id="close-room" aria-keyshortcuts="Escape" onClick={() => model.close()}>
          Close
        </button>
      </div>
      {answer === undefined ? (
        <div id="room-there">
          <p>Asking the node…</p>
        </div>
      ) : 'here' in answer ? (
        <Here room={answer.here} />
      ) : (
        <There room={room} whereabouts={answer.there} />
      )}
    </aside>
  )
}

function Here({ room }: { room: RoomDescription }) {
  const more = room.member_count - room.members.length
  return (
    <div id="room-here">
      <dl class="facts">
        <Figure label="Seq" value={count(room.seq)} />
        <Figure label="Checksum" value={room.checksum.toString(16).padStart(8, '0')} />
        <Figure label="Epoch" value={String(room.epoch)} />
      </dl>
      <h3 id="state-title">State</h3>
      <Tree value={room.state ?? null} title="state-title" />
      <h3>Last events</h3>
      <Events events={room.events ?? []} epoch={room.epoch} />
      <h3>Members {count(room.member_count)}</h3>
      <ul id="members">
        {room.members.map(
          ({ member_id: memberId, sub, session_id: sessionId, connected, node_id: nodeId, layers }) => (
            <li key={memberId} class={connected ? 'connected' : 'away'}>
              <span class="who">{sub ?? memberId}</span>
              <span class="soft">
                {`${connected ? '' : 'away, '}${sub === null ? '' : `${memberId}, `}${sessionId} at ${nodeId}`}
                {layers && `, sees ${layers.join(', ')}`}
              </span>
            </li>
          ),
        )}
      </ul>
      {more > 0 && <p class="soft">{`and ${count(more)} more`}</p>}
      {room.member_count === 0 && <p class="soft">No one is here.</p>}
    </div>
  )
}

/** The latest first; those that came since the last look are marked for a moment. */
function Events({ events, epoch }: { events: readonly RoomEventDescription[]; epoch: number }) {
  const known = useRef<ReadonlySet<string>>()
  const seen = new Map<string, number>()
  const keyed = events.toReversed().map((event) => {
    const at = `${event.epoch}.${event.seq}`
    seen.set(at, (seen.get(at) ?? 0) + 1)
    return { event, key: `${at}.${seen.get(at)}` }
  })
  const before = known.current
  useLayoutEffect(() => {
    known.current = new Set(keyed.map(({ key }) => key))
  })
  // The store keeps no times: what a former owner told is known without.
  const taken = events.findIndex(({ at }) => at === null)
  // An epoch is the time of its claim, unless it had to be larger.
  const when = epoch > 1e12 ? ` at ${timeOfDay(epoch)}` : ''
  return (
    <>
      <ol id="events">
        {keyed.toReversed().flatMap(({ event, key }, at) => [
          at === taken && (
            <li key={`taken.${epoch}`} class="taken soft">
              {`This node took the room over${when}. When the events below were is not known.`}
            </li>
          ),
          <Event key={key} event={event} isNew={before !== undefined && !before.has(key)} />,
        ])}
      </ol>
      {events.length === 0 && <p class="soft">None that is still known.</p>}
    </>
  )
}

function Event({ event, isNew }: { event: RoomEventDescription; isNew: boolean }) {
  const { kind, name, seq, at, to, data, cut } = event
  const text = cut === undefined ? JSON.stringify(data) : `${cut}…`
  return (
    <li class={isNew ? 'changed' : ''}>
      <span class="when">{at === null ? 'earlier' : timeOfDay(Date.parse(at))}</span>
      <span class="seq">{`seq ${count(seq)}`}</span>
      <span class={kind === 'event' ? 'name' : 'name presence'}>
        {kind === 'event' ? name : `${name} ${kind}`}
      </span>
      {to && <span class="tag">{`to ${to.length === 1 ? to[0] : counted(to.length, 'member')}`}</span>}
      {text.length > LONG_DATA ? (
        <details>
          <summary>{text.slice(0, LONG_DATA)}</summary>
          <code>{text}</code>
        </details>
      ) : (
        <code>{text}</code>
      )}
    </li>
  )
}

/** The room is not at this node. */
function There({ room, whereabouts }: { room: RoomName; whereabouts: RoomWhereabouts }) {
  const { owner } = whereabouts
  const href = owner?.alive && !owner.self ? pageOf(owner, room) : undefined
  return (
    <div id="room-there">
      <p>{sayWhere(whereabouts)}</p>
      {owner && href && (
        <p>
          <a href={href} class="button">
            {`Open it at ${owner.node_id}`}
          </a>
        </p>
      )}
    </div>
  )
}

function sayWhere({ owner, epoch }: RoomWhereabouts): string {
  if (epoch === null) return 'There is no such room, here or anywhere in the cluster.'
  if (!owner) return 'No node has this room at the moment. Whichever client joins it next has it opened.'
  if (owner.self) return 'This node has just claimed the room, or has just given it up.'
  if (!owner.alive)
    return `Its last owner ${owner.node_id} is gone. Whichever client is still in it has it taken over.`
  return pageOf(owner)
    ? `This room is at ${owner.node_id}.`
    : `This room is at ${owner.node_id}, which does not tell an address of its admin page that can be opened from here.`
}
