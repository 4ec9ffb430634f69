import { defineRoom } from 'roomful'
import * as v from 'valibot'

export const LOBBY_SEATS = 3
/** Longer than all jumps of the clocks in a run: a reservation ends only by the join of its player. */
const RESERVED_SECONDS = 24 * 3600

/** State of a lobby room. It counts its seats itself, so that it sees when the service gives one away twice. */
export type LobbyState = {
  phase: 'open' | 'closed'
  /** By member id, the player's sub. */
  seats: { [memberId: string]: string }
  /** By sub. */
  reserved: { [sub: string]: true }
  turns: number
  /** Hidden from everyone: a mark without readers. */
  secret: string
  wrong: { name: 'seat_twice'; message: string }[]
}

/** A room that players find by lists, codes and reservations. Its row has everything that `listing.of` gets. */
export const lobbyRoom = defineRoom({
  type: 'chaos-lobby',
  maxMembers: LOBBY_SEATS,
  codes: true,
  // Empty rooms stay listed for a while: they are those of which a dead owner leaves a row.
  idleSeconds: 6,
  reconnectSeconds: 10,
  create: (): LobbyState => ({ phase: 'open', seats: {}, reserved: {}, turns: 0, secret: '', wrong: [] }),
  layers: { secret: null },
  listing: {
    data: v.object({ phase: v.string(), seen: v.string() }),
    of: (state) => (state.phase === 'open' ? { phase: state.phase, seen: JSON.stringify(state) } : null),
  },
  messages: {
    turn: {
      data: v.null(),
      handle(state) {
        state.phase = state.phase === 'open' ? 'closed' : 'open'
        count(state)
      },
    },
    reserve: {
      data: v.object({ sub: v.string() }),
      reply: v.object({ reserved: v.boolean() }),
      handle(state, { data: { sub } }, ctx) {
        const isMember = Object.values(state.seats).includes(sub)
        if (ctx.reserve(sub, RESERVED_SECONDS) && !isMember) state.reserved[sub] = true
        count(state)
        ctx.reply({ reserved: state.reserved[sub] === true })
      },
    },
  },
  onJoin(state, { id, sub }) {
    delete state.reserved[sub ?? '']
    state.seats[id] = sub ?? ''
    count(state)
  },
  onLeave(state, { id }) {
    delete state.seats[id]
    count(state)
  },
})

function count(state: LobbyState): void {
  state.turns += 1
  state.secret = `§lobby#${state.turns}()§`
  const [seats, reserved] = [Object.values(state.seats), Object.keys(state.reserved)]
  if (seats.length + reserved.length <= LOBBY_SEATS || state.wrong.length > 0) return
  const message = `${seats.join(', ')} have a seat, and ${reserved.join(', ')} a reservation, in a room of ${LOBBY_SEATS}`
  state.wrong.push({ name: 'seat_twice', message })
}
