import * as v from 'valibot'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { type Client, connect, type ListedRoom } from '../client/index.ts'
import { defineRoom, startNode } from '../dataplane/index.ts'
import { createLog } from '../shared/log.ts'
import { startService, type TestService } from './support/service.ts'

/** Players who find each other through three nodes. */

const NODES = 3
const PLAYERS = 200
const SEATS = 4

const duel = defineRoom({
  type: 'duel',
  maxMembers: SEATS,
  options: v.object({ map: v.optional(v.string(), 'desert') }),
  create: ({ map }) => ({ open: true, map }),
  listing: {
    data: v.object({ map: v.string() }),
    of: ({ open, map }) => (open ? { map } : null),
  },
  codes: true,
  messages: {
    start: {
      data: v.null(),
      handle(state) {
        state.open = false
      },
    },
  },
})
type Rooms = readonly [typeof duel]

let service: TestService
const urls: string[] = []
const ends: (() => Promise<void>)[] = []

beforeAll(async () => {
  service = await startService({ rooms: [duel] })
  ends.push(() => service.close())
  urls.push(service.wsUrl)
  for (let i = 1; i < NODES; i++) {
    const node = await startNode({
      rooms: [duel],
      store: service.store,
      wsPort: 0,
      adminPort: 0,
      drainSeconds: 0,
      controlUrl: service.controlUrl,
      internalToken: service.internalToken,
      log: createLog({ logLevel: 'silent' } as never, {}),
    })
    ends.unshift(() => node.close())
    urls.push(node.wsUrl)
  }
})
afterAll(async () => {
  for (const end of ends) await end()
})

/** A player of each name, at one node after the other. */
async function players(...names: readonly string[]): Promise<Client<Rooms>[]> {
  const { projectId } = await service.login()
  return Promise.all(
    names.map(async (sub, at) => {
      const { token } = await service.call('POST', '/tokens', { project_id: projectId, sub })
      const client = await connect<Rooms>(urls[at % NODES]!, { projectId, token: token! })
      onTestFinished(() => client.close())
      return client
    }),
  )
}

describe('Players at three nodes', () => {
  it('see a room in the list, join it by its code, and see it go', async () => {
    const [ada, bob, carl] = await players('ada', 'bob', 'carl')
    let seen: readonly ListedRoom<typeof duel>[] = []
    const stop = bob!.watchRooms('duel', { where: { map: 'ice' } }, (rooms) => {
      seen = rooms
    })
    const room = await ada!.create('duel', { map: 'ice' })
    await expect
      .poll(() => seen, { timeout: 5000 })
      .toMatchObject([{ roomId: room.id, members: 1, maxMembers: SEATS, data: { map: 'ice' } }])
    expect(await carl!.rooms('duel', { where: { map: 'fire' } })).toEqual([])
    const same = await carl!.joinByCode(room.code!.toLowerCase())
    expect([same.id, same.code]).toEqual([room.id, room.code])
    await expect.poll(() => seen[0]?.members, { timeout: 5000 }).toBe(2)
    await same.send('start')
    await expect.poll(() => seen, { timeout: 5000 }).toEqual([])
    stop()
    await expect(bob!.joinByCode('000000')).rejects.toMatchObject({ code: 'room_not_found' })
    await expect(bob!.join('duel', { key: 'x' }, { create: false })).rejects.toMatchObject({
      code: 'room_not_found',
    })
  })

  it('share rooms: 200 who call joinOrCreate at one moment get at most 60 rooms of four', async () => {
    const clients = await players(...Array.from({ length: PLAYERS }, (_, at) => `player-${at}`))
    const rooms = await Promise.all(clients.map((client) => client.joinOrCreate('duel', { map: 'desert' })))
    expect(new Set(rooms.map(({ id }) => id)).size).toBeLessThanOrEqual((1.2 * PLAYERS) / SEATS)
  })
})
