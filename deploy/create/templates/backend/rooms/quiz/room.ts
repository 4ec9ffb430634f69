import { type ContextOf, defineRoom } from 'roomful'
import * as v from 'valibot'
import { QUESTIONS, type Question } from './questions.ts'

const ROUNDS = 5
const ANSWER_MS = 15_000
const REVEAL_MS = 4000
/** A match starts with the players who have come until then. */
const GATHER_MS = 8000

interface Quiz {
  mode: 'open' | 'friends' | 'match'
  phase: 'lobby' | 'question' | 'answer' | 'over'
  round: number
  question: { text: string; choices: string[]; endsAt: number } | null
  /** Index of the right choice, while the phase is `answer`. */
  right: number | null
  players: Record<string, { sub: string; name: string; points: number }>
  /** Members who have chosen in this round. Each player sees only the own choice. */
  chosen: Record<string, true>
  choices: Record<string, number>
  /** Questions of the next rounds, and the right choice of this one. No player sees them. */
  secret: { questions: Question[]; right: number }
}

/** A quiz for up to eight players. This code runs on the server. */
const quiz = defineRoom({
  type: 'quiz',
  maxPlayers: 8,
  sameSub: 'replace',
  reconnectSeconds: 20,
  codes: true,
  options: v.object({
    mode: v.optional(v.picklist(['open', 'friends', 'match']), 'open'),
  }),
  layers: { 'choices.*': (memberId) => `member:${memberId}`, secret: null },
  create: ({ mode }): Quiz => ({
    mode,
    phase: 'lobby',
    round: 0,
    question: null,
    right: null,
    players: {},
    chosen: {},
    choices: {},
    secret: { questions: [], right: 0 },
  }),
  listing: {
    data: v.object({ host: v.string() }),
    of: ({ mode, phase, players }) => {
      const [host] = Object.values(players)
      return mode === 'open' && phase === 'lobby' && host ? { host: host.name } : null
    },
  },
  notices: { matchOver: v.record(v.string(), v.number()) },
  messages: {
    start: {
      handle(state, _input, ctx) {
        if (state.phase !== 'lobby') return ctx.refuse('the quiz has started')
        if (ctx.members.length < 2) return ctx.refuse('wait for another player')
        start(state, ctx)
      },
    },
    choose: {
      data: v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(3)),
      handle(state, { data, member }, ctx) {
        if (state.phase !== 'question') return ctx.refuse('the time is up')
        if (state.chosen[member.id]) return ctx.refuse('you have chosen already')
        state.chosen[member.id] = true
        state.choices[member.id] = data
        if (ctx.members.every(({ id }) => state.chosen[id])) reveal(state, ctx)
      },
    },
  },
  timers: {
    next: {
      data: v.null(),
      handle(state, _input, ctx) {
        if (state.phase === 'lobby') start(state, ctx)
        else if (state.phase === 'question') reveal(state, ctx)
        else if (state.phase === 'answer') ask(state, ctx)
      },
    },
  },
  onJoin(state, member, ctx) {
    if (member.sub === null) return ctx.refuse('a player needs a name')
    if (state.phase !== 'lobby') return ctx.refuse('the quiz has started')
    const name = String(member.data?.name ?? 'someone')
    state.players[member.id] = { sub: member.sub, name, points: 0 }
    // A queue has made this room for two players. Perhaps only one of them comes.
    if (state.mode !== 'match') return
    if (ctx.members.length === 2) start(state, ctx)
    else ctx.after(GATHER_MS, 'next', null, { id: 'next' })
  },
  onLeave(state, member) {
    delete state.players[member.id]
    delete state.chosen[member.id]
    delete state.choices[member.id]
  },
})
export default quiz

function start(state: Quiz, ctx: ContextOf<typeof quiz>): void {
  const drawn = QUESTIONS.map((question) => ({ question, at: ctx.random() }))
  drawn.sort((a, b) => a.at - b.at)
  state.secret.questions = drawn.slice(0, ROUNDS).map(({ question }) => question)
  ask(state, ctx)
}

/** Asks the next question. After the last one, the match is over. */
function ask(state: Quiz, ctx: ContextOf<typeof quiz>): void {
  state.chosen = {}
  state.choices = {}
  state.right = null
  const next = state.secret.questions.pop()
  if (!next) {
    state.phase = 'over'
    state.question = null
    const points = Object.values(state.players).map((one) => [one.sub, one.points])
    ctx.notify('matchOver', Object.fromEntries(points))
    return
  }
  const [text, right, ...wrong] = next
  const choices = [right, ...wrong].sort()
  state.secret.right = choices.indexOf(right)
  state.question = { text, choices, endsAt: ctx.now + ANSWER_MS }
  state.round += 1
  state.phase = 'question'
  ctx.after(ANSWER_MS, 'next', null, { id: 'next' })
}

/** Shows the right choice, and gives a point to each player who has it. */
function reveal(state: Quiz, ctx: ContextOf<typeof quiz>): void {
  state.phase = 'answer'
  state.right = state.secret.right
  for (const [id, choice] of Object.entries(state.choices))
    if (choice === state.right && state.players[id]) state.players[id].points += 1
  ctx.after(REVEAL_MS, 'next', null, { id: 'next' })
}
