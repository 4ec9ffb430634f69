import type {
  MemberDescription,
  RoomDescription,
  RoomEventDescription,
} from '../../dataplane/descriptions.ts'
import type { RoomWhereabouts } from '../../dataplane/ops/admin.ts'
import type { Json } from '../../shared/json.ts'
import { Act, ban, closeRoom, endSession, kick } from './actions.tsx'
import { pageOf, type RoomName, useModel } from './model.ts'
import { count, counted, timeOfDay } from './table.tsx'
import { Tree } from './tree.tsx'

const MOST_MEMBERS = 100

/** A button that opens a room. */
export function OpenRoom({ room }: { room: RoomName }) {
  const model = useModel()
  return (
    <button
      type="button"
      class="open"
      aria-expanded={model.isOpen(room)}
      onClick={({ currentTarget }) => model.open(room, currentTarget)}
    >
      {room.room_id}
    </button>
  )
}

/** A figure with its name. */
export const Figure = ({ label, value }: { label: string; value: string }) => (
  <div>
    <dt>{label}</dt>
    <dd>{value}</dd>
  </div>
)

/** Panel of the open room: its members, state and last events, or its other node. The page's address has the name of the room. */
export function RoomPanel({ room }: { room: RoomName }) {
  const model = useModel()
  const { answer } = model
  const exists = answer && ('here' in answer || (answer.there.epoch !== null && !answer.there.ended))
  return (
    <aside id="room" class="card" aria-labelledby="room-title">
      <div class="room-head">
        <h2 id="room-title" tabIndex={-1}>
          {room.room_id}
        </h2>
        <button type="button" id="hide-room" aria-keyshortcuts="Escape" onClick={() => model.close()}>
          Hide
        </button>
      </div>
      <div class="room-head">
        <p class="mono soft">{room.project_id}</p>
        {exists && <Act label="Close the room…" look="danger" action={closeRoom(room)} />}
      </div>
      {answer === undefined ? (
        <p>Asking the node…</p>
      ) : 'here' in answer ? (
        <Here room={answer.here} />
      ) : (
        <There room={room} whereabouts={answer.there} />
      )}
    </aside>
  )
}

function Here({ room }: { room: RoomDescription }) {
  const events = room.events ?? []
  // The store keeps no times: events of a former owner have none.
  const taken = events.findIndex(({ at }) => at === null)
  const more = room.member_count - MOST_MEMBERS
  return (
    <div id="room-here">
      <dl class="facts">
        <Figure label="Seq" value={count(room.seq)} />
        <Figure label="Checksum" value={room.checksum.toString(16).padStart(8, '0')} />
        <Figure label="Epoch" value={String(room.epoch)} />
      </dl>
      <h3>Members {count(room.member_count)}</h3>
      <ul id="members">
        {room.members.slice(0, MOST_MEMBERS).map((member) => (
          <li key={member.member_id} class={`state ${member.connected ? 'serving' : 'away'}`}>
            {member.sub ?? member.member_id}{' '}
            <span class="soft">
              {`${member.spectator ? 'watches, ' : ''}${member.connected ? '' : 'away, '}${member.member_id}, ${member.session_id} at ${member.node_id}`}
              {member.layers && `, sees ${member.layers.join(', ')}`}
            </span>{' '}
            <MemberActions room={room} member={member} />
          </li>
        ))}
      </ul>
      {more > 0 && <p class="soft">{`and ${count(more)} more`}</p>}
      {room.reservations.length > 0 && <h3>Reservations {count(room.reservations.length)}</h3>}
      <ul id="reservations">
        {room.reservations.slice(0, MOST_MEMBERS).map(({ sub, expires_at }) => (
          <li key={sub}>
            {sub} <span class="soft">{`until ${expires_at}`}</span>
          </li>
        ))}
      </ul>
      <h3 id="state-title">State</h3>
      <Tree value={room.state ?? null} title="state-title" />
      <h3>Last events</h3>
      <ol id="events">
        {events.map((event, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: an event has no state
          <Event key={`${event.epoch}.${event.seq}.${at}`} event={event} room={room} isTaken={at === taken} />
        ))}
      </ol>
      {events.length === 0 && <p class="soft">None that is still known.</p>}
    </div>
  )
}

function MemberActions({ room, member }: { room: RoomDescription; member: MemberDescription }) {
  const { sub, session_id } = member
  const { project_id } = room
  return (
    <span class="acts">
      {sub !== null && (
        <>
          <Act label="Kick…" action={kick(room, sub)} />
          <Act label="Ban…" action={ban({ project_id, sub }, room.room_type)} />
        </>
      )}
      <Act label="End session…" action={endSession({ project_id, session_id })} />
    </span>
  )
}

interface EventProps {
  readonly event: RoomEventDescription
  readonly room: RoomDescription
  readonly isTaken: boolean
}

/** Returns a member id with the name of its player, if that is known. */
function named(room: RoomDescription, memberId: string, sub?: Json): string {
  const name = room.members.find((member) => member.member_id === memberId)?.sub ?? sub
  return typeof name === 'string' ? `${name} (${memberId})` : memberId
}

function Event({ event, room, isTaken }: EventProps) {
  const { kind, name, seq, at, to, data, cut } = event
  const player = Object(data).sub as Json | undefined
  return (
    <li>
      {isTaken && (
        <p class="soft">This node took the room over. When the events from here on happened is not known.</p>
      )}
      <span class="soft">{`${at === null ? 'earlier' : timeOfDay(Date.parse(at))} seq ${count(seq)}`}</span>{' '}
      <b>{kind === 'event' ? name : `${named(room, name, player)} ${kind}`}</b>{' '}
      {to && (
        <span class="tag">{`to ${to.length === 1 ? named(room, to[0]!) : counted(to.length, 'member')}`}</span>
      )}
      <code>{cut === undefined ? JSON.stringify(data) : `${cut}…`}</code>
    </li>
  )
}

/** The room is not at this node. */
function There({ room, whereabouts }: { room: RoomName; whereabouts: RoomWhereabouts }) {
  const { owner } = whereabouts
  const page = owner && !owner.self && owner.alive ? pageOf(owner, room) : undefined
  return (
    <div id="room-there">
      <p role="status">{sayWhere(whereabouts)}</p>
      {page && (
        <a class="button" href={page}>
          {`Open it at ${owner!.node_id}`}
        </a>
      )}
    </div>
  )
}

function sayWhere({ owner, epoch, ended }: RoomWhereabouts): string {
  if (epoch === null) return 'There is no such room, here or anywhere in the cluster.'
  if (ended) return 'The room has ended. The next join makes a new one.'
  if (!owner) return 'No node has this room now. The next join opens it.'
  if (owner.self) return 'This node has just claimed or released the room.'
  if (!owner.alive)
    return `Its last owner ${owner.node_id} is gone. The next client that needs it has it taken over.`
  const noAddress = ', which has no address that can be opened from here (ADMIN_URL)'
  return `This room is at ${owner.node_id}${pageOf(owner) ? '' : noAddress}.`
}
