import { expect } from 'vitest'
import { JournalFormat, type RoomSnapshot } from '../../dataplane/rooms/journal.ts'
import type { TestCluster } from './cluster.ts'
import type { Heard, Player } from './cluster-player.ts'
import { until } from './redis-admin.ts'

/** Resolves when all players have the flush that their room's owner delivered last; gives that one. */
export async function agreed(cluster: Pick<TestCluster, 'room'>, roomId: string, players: readonly Player[]) {
  let room: Awaited<ReturnType<TestCluster['room']>>
  await until(`all members of ${roomId} are at one seq`, async () => {
    room = await cluster.room(roomId)
    return players.every(({ position }) => position.seq === room?.seq)
  })
  return room!
}

/**
 * Holds a room without losses to all it promises: everything that each player sent is applied once and in order, every copy is the
 * owner's, each player got every flush and every event of its stream, and nobody noticed an error.
 */
export async function expectIntact(
  cluster: Pick<TestCluster, 'room'>,
  roomId: string,
  players: readonly Player[],
): Promise<void> {
  const owner = await agreed(cluster, roomId, players)
  const state = owner.state as unknown as Player['room']['state']
  expect(state.disorder, 'entries out of order').toBe(0)
  for (const player of players) {
    expect(player.errors).toEqual([])
    expect(player.room.status).toBe('joined')
    expect(player.acked).toBe(player.sent)
    expect(player.room.state).toEqual(state)
    expect(player.position.checksum).toBe(owner.checksum)
    expect(state.accounts[player.id]).toEqual({ count: player.sent, last: player.sent })
    expectStream(player.heard)
    for (const other of players) expectEvents(player, other)
  }
  expectOneHistory(players)
}

/** A member's stream: epochs never go back, and every patch follows what came before it. */
export function expectStream(heard: readonly Heard[]): void {
  heard.forEach((frame, i) => {
    const before = heard[i - 1]
    if (!before) return
    expect(frame.epoch, `an epoch after ${JSON.stringify(before)}`).toBeGreaterThanOrEqual(before.epoch)
    if (frame.t === 'state.patch') expect(frame.seq).toBe(before.seq + 1)
  })
}

/** Everything that `other` added since `player` came was heard once, and in order. */
function expectEvents(player: Player, other: Player): void {
  const numbers = player.added.get(other.id) ?? []
  const first = numbers[0] ?? other.sent + 1
  expect(numbers).toEqual(Array.from({ length: other.sent - first + 1 }, (_, i) => first + i))
}

/** No two members were told different things about one flush. */
function expectOneHistory(players: readonly Player[]): void {
  const checksums = new Map<number, number>()
  for (const { heard } of players)
    for (const { seq, checksum } of heard) {
      const known = checksums.get(seq) ?? checksum
      expect(checksum, `what was told of seq ${seq}`).toBe(known)
      checksums.set(seq, checksum)
    }
}

/** What is kept of a room: its flushes follow each other without a gap, under epochs that only grow. */
export function expectGapFree({ seq, base, updates }: RoomSnapshot): void {
  const format = new JournalFormat()
  let before = { epoch: base.epoch, seq: base.seq }
  for (const bytes of updates) {
    const update = format.readEntry(bytes)
    expect(update.seq).toBe(before.seq + 1)
    expect(update.epoch).toBeGreaterThanOrEqual(before.epoch)
    before = update
  }
  expect(before.seq).toBe(seq)
}
