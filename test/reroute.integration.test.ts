import { describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import type { ConnectOptions } from '../client/index.ts'
import { SERVER_OPCODES } from '../shared/protocol/messages.ts'
import type { Player } from './players/ledger.ts'
import { type ClusterNode, type LocalNode, sharedCluster, type TestCluster } from './support/cluster.ts'
import { freePort, until } from './support/redis-server.ts'

/** Fault of the first rerouted connection of a client, or of the connection that it replaces. */
type Fault =
  | 'none'
  | 'cannot be opened'
  | 'is cut before hello'
  | 'is cut after hello, before the compare-and-set'
  | 'is cut after the compare-and-set, before welcome'
  | 'is cut after welcome'
  | 'replaces one that is cut'
  | 'replaces one whose node is cut off'

/** Network of one client, with a fault of its first rerouted connection. */
class Network {
  readonly WebSocket: NonNullable<ConnectOptions['WebSocket']>
  /** Number of connections to other addresses than `home`. */
  rerouted = 0

  /** `hold`: holds the data between a node and its store. */
  constructor(home: () => string, fault: Fault = 'none', hold: (held: boolean) => void = () => {}) {
    const network = this
    let last: WebSocket | undefined
    class RoutedSocket extends WebSocket {
      readonly #fault: Fault = 'none'
      readonly #before = last

      constructor(url: string, protocols: string[]) {
        const rerouted = !url.includes('nowhere')
        const mine = rerouted && network.rerouted++ === 0 ? fault : 'none'
        super(mine === 'cannot be opened' ? 'ws://127.0.0.1:9' : rerouted ? url : home(), protocols)
        this.#fault = mine
        last = this
      }

      override emit(event: string | symbol, ...args: unknown[]): boolean {
        if (event === 'open') return this.#opens()
        if (event !== 'message') return super.emit(event, ...args)
        const frame = Buffer.from(args[0] as ArrayBuffer)
        const welcome = frame[1] === SERVER_OPCODES.welcome
        if (welcome && this.#fault === 'is cut after the compare-and-set, before welcome') {
          this.terminate()
          return false
        }
        const heard = super.emit(event, ...args)
        if (welcome && this.#fault === 'is cut after welcome') this.terminate()
        return heard
      }

      #opens(): boolean {
        if (this.#fault === 'is cut before hello') {
          this.terminate()
          return false
        }
        if (this.#fault === 'replaces one whose node is cut off') hold(true)
        const cutsEarly = this.#fault === 'is cut after hello, before the compare-and-set'
        if (cutsEarly) hold(true)
        const heard = super.emit('open')
        if (this.#fault === 'replaces one that is cut') this.#before?.terminate()
        if (cutsEarly)
          // After 100 ms, the node has read the hello, but cannot write to its store.
          setTimeout(() => {
            this.terminate()
            hold(false)
          }, 100)
        return heard
      }
    }
    this.WebSocket = RoutedSocket as NonNullable<ConnectOptions['WebSocket']>
  }
}

describe('direct routing', () => {
  const cluster = sharedCluster({ leaseMs: 2000, perTest: true })

  /** Starts a node with an address for clients. */
  const addressed = async (): Promise<LocalNode> => {
    const wsPort = await freePort()
    const [node] = await cluster.local(1, { wsPort, advertiseUrl: `ws://127.0.0.1:${wsPort}` })
    return node!
  }

  const join = (
    login: Awaited<ReturnType<TestCluster['login']>>,
    roomId: string,
    at: ClusterNode,
    network: Network,
    reroute: ConnectOptions['reroute'] = ['127.0.0.1'],
  ): Promise<Player> =>
    cluster.player(login, roomId, at, { connect: { WebSocket: network.WebSocket, reroute } })

  /** Expects that a journal room has applied all messages once and in order, and that all members have its state. */
  const expectIntact = async (roomId: string, players: readonly Player[]): Promise<void> => {
    const room = await cluster.room(roomId)
    const state = room!.state as Player['room']['state']
    expect(state.disorder).toBe(0)
    for (const player of players) {
      expect(player.errors).toEqual([])
      expect(player.room.status).toBe('joined')
      expect(player.acked).toBe(player.sent)
      expect(state.accounts[player.id]).toEqual({ count: player.sent, last: player.sent })
      await until('all have the same state', async () => player.room.state.total === state.total)
      expect(player.room.state).toEqual(state)
      expect(player.client.stats.resyncs).toEqual({ sequence: 0, checksum: 0, unasked: 0 })
      for (const other of players) {
        const heard = player.added.get(other.id) ?? []
        const first = heard[0] ?? other.sent + 1
        expect(heard).toEqual(Array.from({ length: other.sent - first + 1 }, (_, i) => first + i))
      }
    }
  }

  it('moves clients to the node of their rooms without a lost or repeated message or a change of status', async () => {
    const [edge, owner] = [await addressed(), await addressed()]
    const login = await cluster.login()
    const roomId = 'ledger-journal:direct'
    const first = await join(login, roomId, owner, new Network(() => owner.wsUrl))
    const joinAtEdge = (reroute?: ConnectOptions['reroute']) =>
      join(login, roomId, edge, new Network(() => edge.wsUrl), reroute)
    const players = await Promise.all(Array.from({ length: 12 }, () => joinAtEdge()))
    const stayers = await Promise.all([joinAtEdge(false), joinAtEdge([])])
    const everyone = [first, ...players, ...stayers]
    const statuses: unknown[] = []
    const changes: unknown[] = []
    for (const { client } of everyone) client.onConnectionChange((status) => statuses.push(status))
    first.room.onMembersChange((members) => changes.push(members.length))
    const stops = everyone.map((player) => player.play(200))
    await until(
      'all have moved',
      async () => players.every(({ client }) => client.stats.moves === 1),
      180_000,
    )
    const crossed = () => cluster.metric(edge, 'service_room_traffic_total{what="input",way="bus"}')
    await Promise.all(stops.map((stop) => stop()))
    const before = await crossed()
    await Promise.all(players.map((player) => player.add()))
    expect(await crossed()).toBe(before)
    await Promise.all(stayers.map((player) => player.add()))
    expect(await crossed()).toBe(before + stayers.length)
    await expectIntact(roomId, everyone)
    expect(statuses).toEqual([])
    expect(changes).toEqual([])
    expect(await cluster.metric(edge, 'service_reroutes_total{outcome="told"}')).toBeGreaterThanOrEqual(12)
    expect(await cluster.metric(owner, 'service_reroutes_total{outcome="arrived"}')).toBe(12)
    const { sessions } = await cluster.runtime(edge)
    expect(sessions).toHaveLength(stayers.length)
  })

  it('loses and repeats no message when a connection is cut at any step of a move, under load', async () => {
    const [edge, owner] = [await addressed(), await addressed()]
    const login = await cluster.login()
    const roomId = 'ledger-journal:cut'
    const first = await join(login, roomId, owner, new Network(() => owner.wsUrl))
    const faults: Fault[] = [
      'none',
      'cannot be opened',
      'is cut before hello',
      'is cut after hello, before the compare-and-set',
      'is cut after the compare-and-set, before welcome',
      'is cut after welcome',
      'replaces one that is cut',
    ]
    let holds = 0
    const hold = (held: boolean): void => {
      holds += held ? 1 : -1
      owner.link.hold(holds > 0)
    }
    const networks = [...faults, ...faults].map((fault) => new Network(() => edge.wsUrl, fault, hold))
    const players = await Promise.all(networks.map((network) => join(login, roomId, edge, network)))
    const everyone = [first, ...players]
    const stops = everyone.map((player) => player.play(50))
    await until('all were rerouted', async () => networks.every(({ rerouted }) => rerouted > 0))
    const sent = everyone.map((player) => player.sent)
    await until('all continue', async () => everyone.every((player, i) => player.acked > sent[i]! + 20))
    await Promise.all(stops.map((stop) => stop()))
    await expectIntact(roomId, everyone)
    const moves = players.map(({ client }) => client.stats.moves)
    const succeed: readonly Fault[] = ['none', 'is cut after welcome']
    expect(moves).toEqual([...faults, ...faults].map((fault) => (succeed.includes(fault) ? 1 : 0)))
  })

  it('loses no message when the node of the rooms dies during a move', async () => {
    const edge = await addressed()
    const [owner] = await cluster.processes(1, { advertise: true })
    const login = await cluster.login()
    const roomId = 'ledger-journal:dies'
    const doors = () => (owner!.open ? owner!.wsUrl : edge.wsUrl)
    const first = await join(login, roomId, owner!, new Network(doors))
    const networks = Array.from({ length: 8 }, () => new Network(() => edge.wsUrl))
    const players = await Promise.all(networks.map((network) => join(login, roomId, edge, network)))
    const everyone = [first, ...players]
    const stops = everyone.map((player) => player.play(50))
    await until('the first move', async () => networks.some(({ rerouted }) => rerouted > 0))
    owner!.kill()
    const sent = everyone.map((player) => player.sent)
    await until('all continue', async () => everyone.every((player, i) => player.acked > sent[i]! + 20))
    await Promise.all(stops.map((stop) => stop()))
    await expectIntact(roomId, everyone)
  })

  it('the old node drops a session when the message about its move is lost', async () => {
    const [edge, owner] = [await addressed(), await addressed()]
    const login = await cluster.login()
    const roomId = 'ledger-journal:deaf'
    const first = await join(login, roomId, owner, new Network(() => owner.wsUrl))
    const cutOff = () => edge.link.refuse(true)
    const network = new Network(() => edge.wsUrl, 'replaces one whose node is cut off', cutOff)
    const player = await join(login, roomId, edge, network)
    const stops = [first, player].map((one) => one.play(50))
    await until('it has moved', async () => player.client.stats.moves === 1)
    edge.link.refuse(false)
    await until(
      'the old node has dropped the session',
      async () => (await cluster.runtime(edge)).sessions.length === 0,
    )
    await Promise.all(stops.map((stop) => stop()))
    await expectIntact(roomId, [first, player])
  })
})
