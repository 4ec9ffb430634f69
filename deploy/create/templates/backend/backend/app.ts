import { randomUUID } from 'node:crypto'
import { type Context, Hono } from 'hono'
import { getSignedCookie, setSignedCookie } from 'hono/cookie'
import { InvalidNotice, RoomfulError, roomful, verifyNotice } from 'roomful/server'
import type quiz from '../rooms/quiz/room.ts'
import { Coins } from './coins.ts'

const { env } = process
const inProduction = env.NODE_ENV === 'production'
const secret = env.COOKIE_SECRET ?? (inProduction ? '' : 'for development only')
if (!secret) throw new Error('COOKIE_SECRET is missing: set it to 32 random bytes')

/** Requests to `roomful control`. In development, `npm run dev` sets the variables, and no key is needed. */
const game = roomful({
  url: env.CONTROL_URL ?? 'http://127.0.0.1:3000',
  projectId: env.PROJECT_ID ?? '',
  key: env.ROOMFUL_KEY ?? '',
})
const coins = new Coins(env.DATABASE_FILE ?? 'game.db')

/** Returns the player of a browser, and makes a new one for a browser without a valid cookie. If you have a login, use its player id. */
async function playerOf(c: Context): Promise<string> {
  const player = (await getSignedCookie(c, secret, 'player')) || randomUUID()
  const kept = { httpOnly: true, sameSite: 'Lax', maxAge: 365 * 24 * 3600 } as const
  await setSignedCookie(c, 'player', player, secret, { ...kept, secure: inProduction })
  return player
}

export const app = new Hono()

/** `getToken` of the page. */
app.post('/api/token', async (c) => {
  const sub = await playerOf(c)
  const data = { name: `Player ${sub.slice(0, 4)}`, coins: coins.of(sub) }
  return c.text(await game.token({ sub, data }))
})

app.get('/api/coins', async (c) => c.json({ coins: coins.of(await playerOf(c)) }))

/** Rooms report the end of a match here (`NOTIFY_URL`), perhaps more than once. Each point is a coin. */
app.post('/api/notices', async (c) => {
  const { id, data } = await verifyNotice<typeof quiz>(c.req.raw, env.NOTIFY_KEY ?? '')
  coins.give(id, data)
  return c.body(null, 204)
})

app.onError((error, c) => {
  if (error instanceof InvalidNotice) return c.text(error.message, 401)
  if (!(error instanceof RoomfulError)) throw error
  return c.json({ code: error.code, message: error.message }, error.retryable ? 503 : 409)
})
