import { defineRoom } from 'roomful'
import * as v from 'valibot'
import { move } from './move.ts'

/** Side length of the square floor, in units. */
const SIDE = 1000
const FULL_HP = 100
const DAMAGE = 10
/** Minimum distance of a new player from the walls. */
const MARGIN = 80

/** One player: position and health. */
export interface Player {
  x: number
  y: number
  hp: number
}

/** All players, by member id. */
interface ArenaState {
  players: Record<string, Player>
}

const coordinate = v.pipe(v.number(), v.minValue(0), v.maxValue(SIDE))

/** Returns a new player at a random position, with full health. */
function spawn(random: () => number): Player {
  const place = () => Math.round(MARGIN + random() * (SIDE - 2 * MARGIN))
  return { x: place(), y: place(), hp: FULL_HP }
}

/**
 * Up to 64 players walk on one floor and hit each other. The room sends the state to all
 * players, 20 times a second.
 */
export default defineRoom({
  type: 'arena',
  maxPlayers: 64,
  messages: {
    move: {
      data: v.object({ x: coordinate, y: coordinate }),
      rate: { perSecond: 30, burst: 60 },
    },
    hit: { data: v.object({ target: v.string() }), rate: { perSecond: 10, burst: 30 } },
  },
  events: { hit: v.object({ by: v.string(), target: v.string(), hp: v.number() }) },
  sync: { rate: 20 },
  durability: 'journal',
  idleSeconds: 30,
  create: (): ArenaState => ({ players: {} }),
  // A lobby shows how many players were hit.
  listing: {
    data: v.object({ wounded: v.number() }),
    of: ({ players }) => ({
      wounded: Object.values(players).filter(({ hp }) => hp < FULL_HP).length,
    }),
  },

  onJoin(state, member, ctx) {
    state.players[member.id] = spawn(() => ctx.random())
  },

  onMessage(state, input, ctx) {
    const by = input.member.id
    const player = state.players[by]
    if (!player) return ctx.refuse(`you are not on the floor of ${ctx.roomId}`)

    if (input.type === 'move') {
      move(player, input.data)
      return
    }

    const { target } = input.data
    if (target === by)
      return ctx.refuse('you cannot hit yourself: name another player as target')
    const victim = Object.hasOwn(state.players, target)
      ? state.players[target]
      : undefined
    if (!victim)
      return ctx.refuse(
        `no player ${JSON.stringify(target)} in this arena: name a member id as target`,
      )

    victim.hp -= DAMAGE
    ctx.emit('hit', { by, target, hp: victim.hp })
    // The event has 0 hp. In the state, the player has full hp and a new position.
    if (victim.hp <= 0) state.players[target] = spawn(() => ctx.random())
  },

  onLeave(state, member) {
    delete state.players[member.id]
  },
})
