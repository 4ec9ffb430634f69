import { type Clock, timestamp } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import { MsgpackClientCodec } from '../../shared/protocol/client-codec.ts'
import type { DecodedMessage } from '../../shared/protocol/codec.ts'
import { JsonClientCodec } from '../../shared/protocol/json-client-codec.ts'
import type { RoomEventDescription } from '../descriptions.ts'
import { payloadsOf } from '../frame.ts'
import type { JournalFormat } from './journal.ts'
import type { KeptUpdate, Ring } from './ring.ts'
import type { RoomEvent } from './update.ts'

/** More of a room's events is not told. */
const MOST = 50
/** Data longer than this, as JSON, is cut. */
const LONGEST_DATA = 1000

/** What is known of an event besides its update. */
type Told = Omit<RoomEventDescription, 'epoch' | 'seq' | 'at'>

/**
 * The last events of a room, and who came and went: the latest first, 50 at most. Nothing is kept for it, it is read back from what
 * resumes are served from; so it reaches as far as that, and ends where the room was empty.
 */
export function recentEvents(
  history: Pick<Ring, 'latest'>,
  format: JournalFormat,
  clock: Clock,
): RoomEventDescription[] {
  const wall_offset = clock.now() - clock.monotonic()
  const recent: RoomEventDescription[] = []
  for (const kept of history.latest()) {
    const { epoch, seq, since } = kept
    const at = since === undefined ? null : timestamp(wall_offset + since)
    for (const told of toldBy(kept, format).toReversed()) recent.push({ ...told, epoch, seq, at })
    if (recent.length >= MOST) break
  }
  return recent.slice(0, MOST)
}

/** What an update told, in its order. */
function toldBy({ frames, whispers, packed }: KeptUpdate, format: JournalFormat): Told[] {
  const { 'roomful.v1.json': json, 'roomful.v1.msgpack': msgpack } = frames.rest ?? {}
  const sent = json ?? msgpack
  if (sent) {
    const codec = json ? new JsonClientCodec() : new MsgpackClientCodec()
    return [
      ...payloadsOf(sent).flatMap((payload) => ofMessage(codec.decode(payload))),
      ...whispers.map(ofEvent),
    ]
  }
  // Of an update that was sent, what is not in these frames was for nobody.
  if (Object.keys(frames.patch).length > 0 || !packed) return whispers.map(ofEvent)
  const { events, joined, left } = format.readEntry(packed)
  return [
    ...events.map(ofEvent),
    ...left.map(({ member, reason }) => told('left', member.member_id, { sub: member.sub, reason })),
    ...joined.map(({ member }) => told('joined', member.member_id, { sub: member.sub })),
  ]
}

function ofMessage(message: DecodedMessage): Told[] {
  switch (message.t) {
    case 'event':
      return [told('event', message.name, message.data)]
    case 'room.joined':
      return [told('joined', message.member_id, { sub: message.sub })]
    case 'room.left':
      return [told('left', message.member_id, { sub: message.sub, reason: message.reason })]
    default:
      return []
  }
}

const ofEvent = ({ name, data, to }: RoomEvent): Told => told('event', name, data, to)

function told(kind: Told['kind'], name: string, data: Json, to?: readonly string[]): Told {
  const text = JSON.stringify(data)
  return {
    kind,
    name,
    to: to ?? null,
    ...(text.length <= LONGEST_DATA ? { data } : { cut: text.slice(0, LONGEST_DATA) }),
  }
}
