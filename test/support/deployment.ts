import { inject } from 'vitest'
import type { Places } from '../../deploy/balancer/configuration.ts'
import { choosePorts, type Ports } from '../../deploy/local/ports.ts'
import { randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import { type Balancer, type BalancerKind, startBalancer } from './balancer.ts'
import type { Login, TestCluster } from './cluster.ts'
import { type NodeProcess, startNodeProcess } from './cluster-node.ts'
import { Player } from './cluster-player.ts'
import { type Answer, call, type Request } from './control-api.ts'
import { type Program, startProgram } from './program.ts'
import { freePort } from './redis-port.ts'
import { type Certificate, fetchTrusting } from './tls.ts'

/** What a test may choose. */
export interface DeploymentOptions {
  readonly balancer: BalancerKind
  readonly controls?: number
  readonly nodes?: number
  /** More variables for every node. */
  readonly node_env?: Readonly<Record<string, string>>
  /** How many processes the balancer is. */
  readonly balancer_processes?: number
  /** What the balancer's TLS is to be: everybody, nodes included, comes by it then. */
  readonly certificate?: Certificate
}

/** A control process of its own: `roomful control`. */
export interface ControlProcess {
  /** Where it answers itself, past the balancer. */
  readonly url: string
  readonly program: Program
}

type Description = Awaited<ReturnType<TestCluster['runtime']>>

const HOST = '127.0.0.1'
const at = (port: number): string => `${HOST}:${port}`

/** A deployment as it is meant to be: processes of both planes over one Redis, behind a load balancer. */
export class Deployment {
  readonly operator_token = randomToken(systemRandom, 32)
  readonly internal_token = randomToken(systemRandom, 32)
  readonly #keyring_secret = randomToken(systemRandom, 43)
  readonly #key_prefix = `test-${randomToken(systemRandom, 12)}:`
  readonly #redis_url = inject('redisUrl')
  readonly #ports: Ports
  readonly #tls: Places['tls']
  readonly #options: DeploymentOptions
  readonly controls: ControlProcess[] = []
  readonly nodes: NodeProcess[] = []
  readonly #players: Player[] = []
  #balancer: Balancer | undefined

  private constructor(ports: Ports, tls: Places['tls'], options: DeploymentOptions) {
    this.#ports = ports
    this.#tls = tls
    this.#options = options
  }

  /** Resolves once everything serves. */
  static async start(options: DeploymentOptions): Promise<Deployment> {
    const { controls = 2, nodes = 3, balancer, balancer_processes, certificate } = options
    const ports = await choosePorts({ controls, nodes, free: true })
    const tls = certificate && { websocket: at(await freePort()), control: at(await freePort()) }
    const deployment = new Deployment(ports, tls, options)
    try {
      await Promise.all([
        ...ports.controls.map((_, index) => deployment.startControl(index)),
        ...ports.nodes.map((_, index) => deployment.startNode(index)),
      ])
      deployment.#balancer = await startBalancer(balancer, deployment.places, {
        ...(balancer_processes && { processes: balancer_processes }),
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

  /** Where everything is. */
  get places(): Places {
    const { websocket, api, balancer, nodes, controls } = this.#ports
    return {
      websocket: at(websocket),
      control: at(api),
      operations: at(balancer),
      nodes: nodes.map((node) => ({ address: at(node.websocket), health_port: node.admin })),
      controls: controls.map((port) => ({ address: at(port) })),
      ...(this.#tls && { tls: this.#tls }),
    }
  }

  /** Starts the control process of this index, or starts it again at its old place. */
  async startControl(index: number): Promise<ControlProcess> {
    const port = this.#ports.controls[index]!
    const program = startProgram(['control'], {
      CONTROL_PORT: String(port),
      CONTROL_API_TOKENS: this.operator_token,
      KEYRING_SECRET: this.#keyring_secret,
      REDIS_URL: this.#redis_url,
      KEY_PREFIX: this.#key_prefix,
      INTERNAL_TOKEN: this.internal_token,
      LOG_FORMAT: 'json',
      LOG_LEVEL: 'warn',
    })
    const control = { url: `http://${at(port)}`, program }
    this.controls[index] = control
    await program.said(/ ready: /)
    return control
  }

  /** The same with a node. */
  async startNode(index: number): Promise<NodeProcess> {
    const { websocket, admin } = this.#ports.nodes[index]!
    const place = {
      node_id: `node-${index + 1}`,
      redis_url: this.#redis_url,
      key_prefix: this.#key_prefix,
      control_url: this.#tls ? `https://${this.#tls.control}` : `http://${at(this.#ports.api)}`,
      internal_token: this.internal_token,
      lease_ms: 1000,
    }
    const env = {
      WS_PORT: String(websocket),
      ADMIN_PORT: String(admin),
      ...(this.#options.certificate && { NODE_EXTRA_CA_CERTS: this.#options.certificate.cert_file }),
      ...this.#options.node_env,
    }
    const node = await startNodeProcess(place, env)
    this.nodes[index] = node
    return node
  }

  /** Calls the control API through the balancer, as the operator unless told otherwise. */
  call(line: string, request: Request = {}): Promise<Answer> {
    const { certificate } = this.#options
    const send = certificate ? fetchTrusting(certificate.cert) : fetch
    return call(this.balancer.control_url, line, { as: this.operator_token, ...request }, send)
  }

  /** The same past the balancer, at one process. */
  callAt(control: ControlProcess, line: string, request: Request = {}): Promise<Answer> {
    return call(control.url, line, { as: this.operator_token, ...request })
  }

  /** A project of its own with a token for players. */
  async login(): Promise<Login> {
    const project_id: string = (await this.call('POST /projects', { body: { name: 'balanced' } })).body.id
    const { body } = await this.call('POST /tokens', { body: { project_id, ttl_seconds: 3600 } })
    return { project_id, token: body.token }
  }

  /** A player in `type:key`, through the balancer. */
  async player(login: Login, room_id: string): Promise<Player> {
    const [room_type = '', key = ''] = room_id.split(':')
    const doors = () => [this.balancer.ws_url]
    const ca = this.#options.certificate?.cert
    const player = await Player.join({ ...login, room_type, key, doors, ...(ca && { ca }) })
    this.#players.push(player)
    return player
  }

  async players(count: number, login: Login, room_id: string): Promise<Player[]> {
    const players: Player[] = []
    for (let made = 0; made < count; made++) players.push(await this.player(login, room_id))
    return players
  }

  /** Which node has the connection of a member of a room, as the room's owner sees it. */
  async nodeOf(room_id: string, player: Player): Promise<string | undefined> {
    const room = await this.room(room_id)
    return room?.members.find(({ member_id }) => member_id === player.id)?.node_id
  }

  /** The room as its owner describes it; undefined: no open node runs it. */
  async room(room_id: string): Promise<Description['rooms'][number] | undefined> {
    const open = this.nodes.filter((node) => node.open)
    const all = await Promise.all(open.map((node) => this.runtime(node)))
    return all.flatMap(({ rooms }) => rooms).find((room) => room.room_id === room_id)
  }

  /** What a node says of its rooms and sessions. */
  async runtime({ admin_url }: NodeProcess): Promise<Description> {
    const headers = { 'x-service-internal-token': this.internal_token }
    return (await (
      await fetch(`${admin_url}/admin/runtime?include_state=1`, { headers })
    ).json()) as Description
  }

  /** Ends every player; the processes stay for the next test. */
  reset(): void {
    for (const player of this.#players.splice(0)) player.close()
  }

  /** The same, and starts again whatever a test has ended, or left hanging. */
  async restore(): Promise<void> {
    this.reset()
    const nodes = this.nodes.map(async (node, index) => {
      if (node.open) return
      await node.close()
      await this.startNode(index)
    })
    const controls = this.controls.map(async ({ program }, index) => {
      if (program.child.exitCode === null && program.child.signalCode === null) return
      await this.startControl(index)
    })
    await Promise.all([...nodes, ...controls])
  }

  async close(): Promise<void> {
    this.reset()
    await this.#balancer?.close()
    await Promise.all(this.nodes.map((node) => node?.close()))
    for (const control of this.controls) control?.program.child.kill('SIGKILL')
    await Promise.all(this.controls.map((control) => control?.program.ended))
  }
}
