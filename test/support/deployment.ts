import { inject } from 'vitest'
import type { RoomDescription } from '../../dataplane/descriptions.ts'
import type { Places } from '../../deploy/balancer/configuration.ts'
import { LocalCluster } from '../../deploy/local/local-cluster.ts'
import {
  type Balancer,
  type BalancerKind,
  type Certificate,
  fetchTrusting,
  startBalancer,
} from './balancer.ts'
import { runtimeOf } from './calls.ts'
import { type Login, type NodeProcess, nodeProcess } from './cluster.ts'
import { Player } from './cluster-player.ts'
import { type Answer, call, type Request } from './control-api.ts'
import { freePort } from './redis-server.ts'
import { runEnvironment } from './run-folder.ts'

/** What a test may choose. */
interface DeploymentOptions {
  readonly balancer: BalancerKind
  readonly controls?: number
  readonly nodes?: number
  /** More variables for every node. */
  readonly nodeEnv?: Readonly<Record<string, string>>
  /** How many processes the balancer is. */
  readonly balancerProcesses?: number
  /** What the balancer's TLS is to be: everyone, nodes included, comes by it then. */
  readonly certificate?: Certificate
}

/** A control process of its own: `roomful control`. */
export interface ControlProcess {
  /** Where it answers itself, past the balancer. */
  readonly url: string
  kill(): void
}

const HOST = '127.0.0.1'
const ROOMS = `${import.meta.dirname}/cluster-rooms`
const at = (port: number): string => `${HOST}:${port}`

/** A deployment as it is meant to be: processes of both planes over one Redis, behind a load balancer. */
export class Deployment {
  readonly operatorToken: string
  readonly internalToken: string
  readonly controls: readonly ControlProcess[]
  readonly nodes: readonly NodeProcess[]
  readonly #cluster: LocalCluster
  readonly #tls: Places['tls']
  readonly #options: DeploymentOptions
  readonly #players: Player[] = []
  #balancer: Balancer | undefined

  private constructor(cluster: LocalCluster, tls: Places['tls'], options: DeploymentOptions) {
    this.#cluster = cluster
    this.#tls = tls
    this.#options = options
    this.operatorToken = cluster.secrets.operatorToken
    this.internalToken = cluster.secrets.internalToken
    this.controls = cluster.ports.controls.map((port, index) => ({
      url: `http://${at(port)}`,
      kill: () => void cluster.child(`control-${index + 1}`).kill(),
    }))
    this.nodes = cluster.nodes.map((node) => nodeProcess({ ...node, nodeId: node.child.name }))
  }

  /** Resolves once everything serves. */
  static async start(options: DeploymentOptions): Promise<Deployment> {
    const { controls = 2, nodes = 3, balancer, balancerProcesses, certificate } = options
    const tls = certificate && { websocket: at(await freePort()), control: at(await freePort()) }
    const cluster = await LocalCluster.prepare({
      nodes,
      controls,
      balancer: 'outside',
      env: {
        ...runEnvironment(),
        REDIS_URL: inject('redisUrl'),
        NODE_LEASE_MS: '1000',
        DRAIN_SECONDS: '1',
        HEARTBEAT_SECONDS: '10',
        ROOMS_DIR: ROOMS,
        LOG_LEVEL: 'warn',
        ...(certificate && { NODE_EXTRA_CA_CERTS: certificate.certFile }),
        ...options.nodeEnv,
      },
      controlUrl: tls && `https://${tls.control}`,
    })
    const deployment = new Deployment(cluster, tls, options)
    try {
      await cluster.start()
      deployment.#balancer = await startBalancer(balancer, deployment.places, {
        ...(balancerProcesses && { processes: balancerProcesses }),
        ...(certificate && { certificate, settings: ['tls', 'hsts'] }),
      })
      return deployment
    } catch (error) {
      await deployment.close()
      throw error
    }
  }

  get balancer(): Balancer {
    if (!this.#balancer) throw new Error('the balancer does not run')
    return this.#balancer
  }

  /** The process ids of the nodes. */
  get nodePids(): readonly number[] {
    return this.nodes.map(({ nodeId }) => this.#cluster.child(nodeId).pid!)
  }

  /** Where everything is. */
  get places(): Places {
    const { websocket, api, balancer, nodes, controls } = this.#cluster.ports
    return {
      websocket: at(websocket),
      control: at(api),
      operations: at(balancer),
      nodes: nodes.map((node) => ({ address: at(node.websocket), healthPort: node.admin })),
      controls: controls.map((port) => ({ address: at(port) })),
      ...(this.#tls && { tls: this.#tls }),
    }
  }

  /** Calls the control API through the balancer, as the operator unless told otherwise. */
  call(line: string, request: Request = {}): Promise<Answer> {
    const { certificate } = this.#options
    const send = certificate ? fetchTrusting(certificate.cert) : fetch
    return call(this.balancer.controlUrl, line, { as: this.operatorToken, ...request }, send)
  }

  /** The same past the balancer, at one process. */
  callAt(control: ControlProcess, line: string, request: Request = {}): Promise<Answer> {
    return call(control.url, line, { as: this.operatorToken, ...request })
  }

  /** A project of its own with a token for players. */
  async login(): Promise<Login> {
    const projectId: string = (await this.call('POST /projects', { body: { name: 'balanced' } })).body.id
    const { body } = await this.call('POST /tokens', { body: { project_id: projectId, ttl_seconds: 3600 } })
    return { projectId, token: body.token }
  }

  /** A player in `type:key`, through the balancer, by a path of its address. */
  async player(login: Login, roomId: string, path = ''): Promise<Player> {
    const [roomType = '', key = ''] = roomId.split(':')
    const doors = () => [this.balancer.wsUrl + path]
    const ca = this.#options.certificate?.cert
    const player = await Player.join({ ...login, roomType, key, doors, ...(ca && { ca }) })
    this.#players.push(player)
    return player
  }

  async players(count: number, login: Login, roomId: string): Promise<Player[]> {
    const players: Player[] = []
    for (let made = 0; made < count; made++) players.push(await this.player(login, roomId))
    return players
  }

  /** Which node has the connection of a member of a room, as the room's owner sees it. */
  async nodeOf(roomId: string, player: Player): Promise<string | undefined> {
    const room = await this.room(roomId)
    return room?.members.find(({ member_id: memberId }) => memberId === player.id)?.node_id
  }

  /** The room as its owner describes it; undefined: no open node runs it. */
  async room(roomId: string): Promise<RoomDescription | undefined> {
    const open = this.nodes.filter((node) => node.open)
    const all = await Promise.all(open.map((node) => this.runtime(node)))
    return all.flatMap(({ rooms }) => rooms).find((room) => room.room_id === roomId)
  }

  /** What a node says of its rooms and sessions. */
  runtime({ adminUrl }: NodeProcess) {
    return runtimeOf(adminUrl, this.internalToken)
  }

  /** Ends every player; the processes stay for the next test. */
  reset(): void {
    for (const player of this.#players.splice(0)) player.close()
  }

  /** The same, and starts again whatever a test has ended, or left hanging. */
  async restore(): Promise<void> {
    this.reset()
    await Promise.all(this.nodes.map((node) => (node.open ? undefined : node.close())))
    const ended = [...this.#cluster.children.values()].filter(({ pid }) => pid === undefined)
    await Promise.all(ended.map((child) => child.start()))
  }

  async close(): Promise<void> {
    this.reset()
    await this.#balancer?.close()
    this.#cluster.abandon()
    await this.#cluster.close()
  }
}
