import { expect, it, vi } from 'vitest'
import type { RoomDefinition } from '../dataplane/rooms/definition.ts'
import { sharedCluster } from './support/cluster.ts'
import { type Ledger, ledgerRoom } from './support/cluster-room.ts'

const FIRST = ledgerRoom('journal')
/** The same room type with an additional field in its state. */
const SECOND: RoomDefinition = Object.freeze({
  ...FIRST,
  version: 2,
  migrate: { 1: (state: unknown) => ({ ...(state as Ledger), migrated: true }) },
})
const ROOMS = ['a', 'b', 'c', 'd', 'e', 'f'].map((key) => `ledger-journal:${key}`)

const cluster = sharedCluster()

it('a rolling upgrade to a newer version of a state loses no message, and no old node claims a room that was migrated', async () => {
  const old = await cluster.local(3, { rooms: [FIRST] })
  const upgraded = () => cluster.local(1, { rooms: [SECOND] })
  const login = await cluster.login()
  const players = await Promise.all(
    ROOMS.map((room, index) => cluster.player(login, room, old[index % old.length])),
  )
  const stops = players.map((player) => player.play(20))

  const owners = () => Promise.all(ROOMS.map((room) => cluster.inspect(login, room)))
  /** Migrated rooms that an old node has claimed. It must stay empty. */
  const wrong: string[] = []
  for (const { store } of old) {
    const { rooms } = store
    const claim = rooms.claim.bind(rooms)
    vi.spyOn(rooms, 'claim').mockImplementation(async (room, ...rest) => {
      const claimed = await claim(room, ...rest)
      if (claimed && (await cluster.store.rooms.inspect(room))?.stateVersion === 2) wrong.push(room)
      return claimed
    })
  }

  const [first] = await upgraded()
  await old[0]!.drain()
  const [second] = await upgraded()
  await old[1]!.drain()
  // The upgrade is interrupted: while only an old node runs, no node runs the migrated rooms.
  await Promise.all([first!.drain(), second!.drain()])
  const resting = (await owners()).filter((owner) => owner?.stateVersion === 2)
  expect(resting.length).toBeGreaterThan(0)
  await upgraded()
  await old[2]!.drain()

  await Promise.all(stops.map((stop) => stop()))
  const found = await owners()
  expect(found.map((owner) => owner?.stateVersion)).toEqual(ROOMS.map(() => 2))
  expect(wrong).toEqual([])
  for (const player of players) {
    const { sent, acked, errors, account, heard } = player
    expect(player.room.state).toMatchObject({ migrated: true, disorder: 0 })
    expect([acked, account]).toEqual([sent, { count: sent, last: sent }])
    expect(errors).toEqual([])
    expect(heard.filter(({ t }) => t === 'state.resync')).toEqual([])
  }
})
