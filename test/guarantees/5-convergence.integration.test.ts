import { beforeAll, describe, expect, it } from 'vitest'
import { Checksum } from '../../shared/sync/checksum.ts'
import { agreed, expectIntact, isPatch, type Player } from '../players/ledger.ts'
import { type LocalNode, type Login, sharedCluster } from '../support/cluster.ts'
import { until } from '../support/redis-server.ts'

describe('guarantee 5: convergence', () => {
  const cluster = sharedCluster()
  let nodes: LocalNode[]
  let login: Login
  beforeAll(async () => {
    nodes = await cluster.local(3)
    login = await cluster.login()
  })

  it.each(['journal', 'snapshot', 'none'])(
    'every member at every node has the same (epoch, seq, checksum) and state, in a %s room',
    async (durability) => {
      const roomId = `ledger-${durability}:same`
      const players = await cluster.playersAt(login, roomId, [...nodes, ...nodes])
      const stops = players.map((player) => player.play(15))
      await until('all play', async () => players.every(({ acked }) => acked > 30))
      for (const player of players.slice(0, 3)) player.cut()
      await until('all continue', async () => players.every(({ acked }) => acked > 60))
      await Promise.all(stops.map((stop) => stop()))

      await expectIntact(cluster, roomId, players)
      const { epoch, seq, checksum } = await agreed(cluster, roomId, players)
      for (const player of players) {
        expect(player.position).toMatchObject({ epoch, seq, checksum })
        // The checksum of the copy itself, not only the received checksum.
        expect(new Checksum().of(player.room.state as never)).toBe(checksum)
      }
    },
  )

  /** Joins a player at a node that does not own the room. After `drift`, `tamper` changes or drops the frames of one flush for it. */
  async function drifting(roomId: string, tamper: (frame: Buffer) => Buffer | undefined) {
    const first = await cluster.player(login, roomId, nodes[0])
    const [owner, elsewhere] = await cluster.ownerFirst(login, roomId, nodes)
    let patches: number | undefined
    const odd: Player = await cluster.player(login, roomId, elsewhere, {
      tamper: (frame) => {
        if (patches !== undefined && isPatch(frame)) patches += 1
        return patches === 1 ? tamper(frame) : frame
      },
    })
    return { first, odd, owner: owner!, drift: () => (patches = 0) }
  }

  const spoil = (frame: Buffer): Buffer => {
    if (!isPatch(frame)) return frame
    const wrong = Buffer.from(frame)
    wrong[wrong.length - 1]! ^= 1
    return wrong
  }

  it.each([
    { reason: 'checksum', tamper: spoil, what: 'wrong value' },
    { reason: 'sequence', tamper: () => undefined, what: 'lost flush' },
  ] as const)('a resync repairs a copy after a $what, and is counted', async ({ reason, tamper }) => {
    const roomId = `ledger-journal:${reason}`
    const { first, odd, owner, drift } = await drifting(roomId, tamper)
    const counted = () => cluster.metric(owner, `service_resyncs_total{reason="${reason}"}`)
    const before = await counted()
    await first.add()
    await until('both see it', async () => odd.room.state.total === 1)
    drift()
    await first.add()
    await first.add()

    const { seq, checksum } = await agreed(cluster, roomId, [first, odd])
    await until('the odd one has the state', async () => odd.room.state.total === 3)
    expect(odd.room.state).toEqual(first.room.state)
    expect(odd.position).toMatchObject({ seq, checksum })
    expect(odd.client.stats.resyncs[reason]).toBe(1)
    expect(await counted()).toBe(before + 1)
    expect(first.client.stats.resyncs).toEqual({ sequence: 0, checksum: 0, unasked: 0 })
  })
})
