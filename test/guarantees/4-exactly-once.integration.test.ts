import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { roomful } from 'roomful/server'
import { describe, expect, it, onTestFinished } from 'vitest'
import { expectIntact, type Player } from '../players/ledger.ts'
import { callControl } from '../support/calls.ts'
import { sharedCluster } from '../support/cluster.ts'
import bank from '../support/cluster-rooms/bank.ts'
import { FaultyLink } from '../support/faulty-link.ts'
import { until } from '../support/redis-server.ts'

const BANK = 'bank:one'

describe('guarantee 4: exactly once', () => {
  const cluster = sharedCluster({ leaseMs: 1000, perTest: true })

  /** Waits until each player has more than `by` new acks. */
  const playOn = async (players: readonly Player[], by = 25): Promise<void> => {
    const acked = players.map((player) => player.acked)
    await until('all continue', async () => players.every((player, i) => player.acked > acked[i]! + by))
  }

  it('a room applies each message once and in order, across reconnects, a kill, a drain and lost connections to the store', async () => {
    const [killed] = await cluster.processes(1)
    const [b, c, d] = await cluster.local(3)
    const login = await cluster.login()
    const roomId = 'ledger-journal:once'
    const players = await cluster.playersAt(login, roomId, [killed!, b!, c!, d!])
    const stops = players.map((player) => player.play(15))
    await playOn(players)

    for (let i = 0; i < 3; i++) {
      for (const player of players) player.cut()
      await playOn(players, 5)
    }
    for (const { link } of [b!, c!, d!]) {
      link.cut()
      await playOn(players, 5)
    }
    killed!.kill()
    await playOn(players)
    const { nodeId } = await cluster.owner(login, roomId)
    const drained = [b!, c!, d!].find((node) => node.nodeId === nodeId)!
    await drained.drain()
    await playOn(players)
    await Promise.all(stops.map((stop) => stop()))
    await expectIntact(cluster, roomId, players)
  })

  /**
   * Sends 100 messages that the room refuses and one that it applies, while the player receives nothing. So the ack of the last message is
   * sent before the player knows a refusal. Expects a refusal of each of the 100 messages.
   */
  const refusedUnheard = async (
    player: Player,
    witness: Player,
    silence: { begin: () => void; end: () => void },
  ): Promise<void> => {
    silence.begin()
    const refused = Array.from({ length: 100 }, () => player.room.send('nonsense' as 'add', { n: 0 }))
    const outcomes = Promise.allSettled(refused)
    const applied = player.add()
    await until('the room has handled all', async () => witness.room.state.total === 1)
    silence.end()
    await applied
    for (const outcome of await outcomes)
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'unknown_type' } })
    expect(witness.room.state.total).toBe(1)
  }

  it('a refused message is not acknowledged when the connection breaks before the errors arrive', async () => {
    const [node] = await cluster.local(1)
    const login = await cluster.login()
    const witness = await cluster.player(login, 'ledger-journal:cut', node)
    let deaf = false
    const player = await cluster.player(login, 'ledger-journal:cut', node, {
      tamper: (frame) => (deaf ? undefined : frame),
    })
    const begin = () => {
      deaf = true
    }
    const end = () => {
      player.cut()
      deaf = false
    }
    await refusedUnheard(player, witness, { begin, end })
  })

  it.each(['lives', 'is killed'])(
    'a refused message is not acknowledged when the errors are lost between nodes and the owner %s',
    async (owner) => {
      const [node] = await cluster.processes(1)
      const login = await cluster.login()
      const roomId = `ledger-journal:gap ${owner}`
      const witness = await cluster.player(login, roomId, node)
      const [edge] = await cluster.local(1)
      const player = await cluster.player(login, roomId, edge)
      const begin = () => edge!.link.mute('subscribe')
      const end = () => {
        if (owner === 'is killed') node!.kill()
        edge!.link.unmute()
      }
      await refusedUnheard(player, witness, { begin, end })
    },
  )

  it.each(['the owner', 'another node'])(
    'a request of a player at %s gets its first reply again after the reply was lost with a killed owner',
    async (at) => {
      const [killed] = await cluster.processes(1)
      const login = await cluster.login()
      const roomId = `ledger-journal:request at ${at}`
      await cluster.player(login, roomId, killed)
      const [other] = await cluster.local(1)
      const witness = await cluster.player(login, roomId, other)
      /** The player receives nothing from this node. */
      let silent: string | undefined
      const player: Player = await cluster.player(login, roomId, at === 'the owner' ? killed : other, {
        tamper: (frame) => (silent !== undefined && player.door === silent ? undefined : frame),
      })
      silent = player.door
      const asked = player.room.request('draw')
      await until('the room has answered', async () => witness.room.state.drawn === 1)
      killed!.kill()
      expect(await witness.room.request('draw')).toEqual({ number: 2 })
      if (at === 'another node') {
        silent = undefined
        player.cut()
      }
      expect(await asked).toEqual({ number: 1 })
      expect(await player.room.request('draw')).toEqual({ number: 3 })
      await until('the witness has the last draw', async () => witness.room.state.drawn === 3)
    },
  )

  it('a call has one effect and one answer when the owner is killed between commit and answer', async () => {
    // The store executes the owner's commands, and the owner receives no answers.
    const link = await FaultyLink.open(cluster.redisUrl)
    onTestFinished(() => link.close())
    const [owner] = await cluster.processes(1, { env: { REDIS_URL: link.url } })
    const { login, call } = await backend()
    await call('grant', 'order-1')
    await cluster.local(1, { rooms: [bank] })
    const { version } = (await cluster.inspect(login, BANK))!
    link.mute('roomful-commands')
    const answer = call('grant', 'order-2')
    await until('the effect is stored', async () => (await cluster.inspect(login, BANK))!.version > version)
    owner!.kill()
    expect(await answer).toBe(2)
    expect(await call('grant', 'order-2')).toBe(2)
    expect(await call('grant', 'order-3')).toBe(3)
  })

  it('calls at a node that hangs are answered by another node, and do not run again when the node continues', async () => {
    await cluster.local(1, { rooms: [bank] })
    const { login, call } = await backend()
    await call('grant', 'before')
    const [hanging] = await cluster.processes(1)
    hanging!.stop()
    // Control sends each of them to one of the two nodes first, and answers 504 if that node is the only one that it asks.
    const path = `/projects/${login.projectId}/rooms/bank/one/calls/grant`
    const answers = Array.from({ length: 16 }, (_, i) =>
      callControl(cluster.control.url, 'POST', path, undefined, { 'idempotency-key': `order-${i}` }),
    )
    const totals = (await Promise.all(answers)).map(({ reply }) => Number(reply))
    expect(totals.sort((a, b) => a - b)).toEqual(Array.from({ length: 16 }, (_, i) => i + 2))
    hanging!.cont()
    const ready = async () => (await fetch(`${hanging!.adminUrl}/readyz`)).ok
    await until('the node is ready', ready)
    expect(await call('grant', 'after')).toBe(18)
  })

  it('a notice of a killed owner is delivered before the notices of the next owner', async () => {
    const received: unknown[] = []
    const server = createServer(async (request, response) => {
      received.push(JSON.parse(await text(request)).data)
      response.end()
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    // This node has no NOTIFY_URL.
    const [owner] = await cluster.processes(1)
    const { call } = await backend()
    await call('report', 'order-1')
    // After a failed attempt, the node has released the lease of the delivery.
    const failed = 'service_notice_attempts_total{result="failed"}'
    await until('an attempt has failed', async () => (await cluster.metric(owner!, failed)) > 0)
    owner!.kill()
    const { port } = server.address() as AddressInfo
    await cluster.local(1, {
      rooms: [bank],
      notifyUrl: `http://127.0.0.1:${port}`,
      notifySecret: [`whsec_${Buffer.alloc(24).toString('base64')}`],
    })
    await call('report', 'order-2')
    await until('both notices have arrived', async () => received.length === 2)
    expect(received).toEqual([{ gold: 1 }, { gold: 2 }])
  })

  /** Creates a project. Returns a function that calls its bank with an idempotency key. */
  async function backend() {
    const login = await cluster.login()
    const game = roomful({ url: cluster.control.url, projectId: login.projectId, key: '' })
    const room = game.room<typeof bank>('bank', 'one')
    const call = (name: 'grant' | 'report', id: string) => room.call(name, null, { id, open: true })
    return { login, call }
  }

  /**
   * Pub/sub delivers at most once: messages to a node are lost without an error while its connection drops them. After a moment, only the
   * numbers of the envelopes show the gap. If it never ends, the node must detect the dead connection.
   */
  it.each([
    { deaf: 'owner', time: 'a moment' },
    { deaf: 'edge', time: 'a moment' },
    { deaf: 'owner', time: 'ever' },
    { deaf: 'edge', time: 'ever' },
  ])(
    'a room loses nothing when messages of the bus to the $deaf are dropped for $time',
    async ({ deaf, time }) => {
      const [owner] = await cluster.local(1)
      const login = await cluster.login()
      const roomId = `ledger-journal:${deaf}-${time}`
      const atOwner = await cluster.player(login, roomId, owner)
      const [edge] = await cluster.local(1)
      const players = [atOwner, await cluster.player(login, roomId, edge)]
      const { link } = deaf === 'owner' ? owner! : edge!
      const stops = players.map((player) => player.play(15))
      await playOn(players)
      link.mute('subscribe')
      await playOn([atOwner], 3)
      if (time === 'a moment') link.unmute()
      await playOn(players)
      await Promise.all(stops.map((stop) => stop()))
      await expectIntact(cluster, roomId, players)
    },
  )
})
