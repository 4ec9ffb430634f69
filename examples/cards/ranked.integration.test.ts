import { pino } from 'pino'
import { connect, type Room } from 'roomful/client'
import { withQueues } from 'roomful/client/queue'
import { expect, it, onTestFinished } from 'vitest'
import { startDev } from '../../deploy/cli/dev.ts'
import { parseConfig } from '../../shared/config.ts'
import { readToken } from '../../shared/tokens.ts'
import type ranked from './queue.ts'
import type cards from './room.ts'
import { type Card, fits } from './rules.ts'

interface Login {
  readonly project_id: string
  readonly token: string
  readonly ws_url: string
  readonly player: object
}

it('The winner of a ranked game has one win more in the next token, because the backend asks the room', async () => {
  const ports = { EXAMPLES_PORT: '0', CONTROL_PORT: '0', WS_PORT: '0', ADMIN_PORT: '0' }
  const parsed = parseConfig('dev', ports)
  if (!parsed.ok) throw new Error('this configuration should be valid')
  const log = pino({ level: 'silent' })
  const service = await startDev({ config: parsed.config, log, tell: () => undefined })
  onTestFinished(() => service.close())
  const post = (path: string, body: object) =>
    fetch(`${service.addresses.games}${path}`, { method: 'POST', body: JSON.stringify(body) })
  const login = async (player?: object): Promise<Login> =>
    (await post('/api/session', { game: 'cards', ...(player && { player }) })).json() as never
  const winsIn = ({ token }: Login) => readToken(token).claims.data

  const logins = [await login(), await login()]
  expect(logins.map(winsIn)).toEqual([{ wins: 0 }, { wins: 0 }])
  const seats = await Promise.all(
    logins.map(async ({ project_id: projectId, token, ws_url: wsUrl }) => {
      const client = withQueues(await connect<[typeof cards, typeof ranked]>(wsUrl, { projectId, token }))
      onTestFinished(() => client.close())
      return client.queue('cards-ranked', {}).matched
    }),
  )
  const winner = seats.indexOf(await played(seats))
  expect((await post('/api/over', { key: seats[0]!.key })).status).toBe(204)
  expect(winsIn(await login(logins[winner]!.player))).toEqual({ wins: 1 })
  expect(winsIn(await login(logins[1 - winner]!.player))).toEqual({ wins: 0 })
  expect((await post('/api/over', { key: 'no-such-table' })).status).toBe(502)
})

/** Plays a game to its end. Resolves to the seat of the winner. */
async function played(seats: readonly Room<typeof cards>[]): Promise<Room<typeof cards>> {
  const [first] = seats
  const over = new Promise<string>((resolve) => first!.on('over', ({ winner }) => resolve(winner)))
  await first!.send('deal')
  while (first!.state.phase !== 'over') {
    const seat = seats.find(
      ({ memberId, state: { phase, turn } }) => phase === 'playing' && turn.of === memberId,
    )
    // The turn has changed, and the next player does not know it yet.
    await new Promise(setImmediate)
    if (!seat) continue
    const { hands, pile, suit } = seat.state
    const playable = (card: string): boolean => fits(card as Card, pile.at(-1)!, suit)
    const card = hands[seat.memberId]?.find(playable)
    // A player who plays too fast is refused, and passes.
    const plays =
      card &&
      (await seat.send('play', { card }).then(
        () => true,
        () => false,
      ))
    if (plays) continue
    await seat.request('draw').catch(() => undefined)
    await seat.send('pass')
  }
  const winner = await over
  return seats.find(({ memberId }) => memberId === winner)!
}
