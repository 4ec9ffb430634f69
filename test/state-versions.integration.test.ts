import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import type { RoomDefinition } from '../dataplane/rooms/definition.ts'
import { TestCluster } from './support/cluster.ts'
import { type Ledger, ledgerRoom } from './support/cluster-room.ts'

const FIRST = ledgerRoom('journal')
/** The same rooms, whose state has a field more since. */
const SECOND: RoomDefinition = Object.freeze({
  ...FIRST,
  version: 2,
  migrate: { 1: (state: unknown) => ({ ...(state as Ledger), migrated: true }) },
})
const ROOMS = ['a', 'b', 'c', 'd', 'e', 'f'].map((key) => `ledger-journal:${key}`)

let cluster: TestCluster
beforeAll(async () => {
  cluster = await TestCluster.start()
})
afterAll(() => cluster?.close())

it('a rolling upgrade to a newer version of a state loses no message, and no old node claims a room that was migrated', async () => {
  const old = await cluster.local(3, { rooms: [FIRST] })
  const upgraded = () => cluster.local(1, { rooms: [SECOND] })
  const login = await cluster.login()
  const players = await Promise.all(
    ROOMS.map((room, index) => cluster.player(login, room, old[index % old.length])),
  )
  const stops = players.map((player) => player.play(20))

  const wrong: string[] = []
  const owners = () => Promise.all(ROOMS.map((room) => cluster.inspect(login, room)))
  const looking = setInterval(() => {
    owners().then(
      (found) => {
        for (const owner of found)
          if (owner?.stateVersion === 2 && old.some(({ nodeId }) => nodeId === owner.owner))
            wrong.push(owner.owner!)
      },
      () => {},
    )
  }, 20)
  onTestFinished(() => clearInterval(looking))

  const [first] = await upgraded()
  await old[0]!.drain()
  const [second] = await upgraded()
  await old[1]!.drain()
  // An upgrade is not always straight: what was migrated goes to the other new node, and not to the old one.
  await first!.drain()
  await upgraded()
  await old[2]!.drain()

  await Promise.all(stops.map((stop) => stop()))
  const found = await owners()
  expect(found.map((owner) => owner?.stateVersion)).toEqual(ROOMS.map(() => 2))
  expect(wrong).toEqual([])
  expect(found.some((owner) => owner?.owner === second!.nodeId)).toBe(true)
  for (const player of players) {
    const { sent, acked, errors, account, heard } = player
    expect(player.room.state).toMatchObject({ migrated: true, disorder: 0 })
    expect([acked, account]).toEqual([sent, { count: sent, last: sent }])
    expect(errors).toEqual([])
    expect(heard.filter(({ t }) => t === 'state.resync')).toEqual([])
  }
})
