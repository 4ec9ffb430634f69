import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { request as plainRequest } from 'node:http'
import { request } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { inject } from 'vitest'
import type { RoomDescription } from '../../dataplane/descriptions.ts'
import { haproxyAt, nginxAt, type Places } from '../../deploy/balancer/configuration.ts'
import { LocalCluster } from '../../deploy/local/local-cluster.ts'
import { Children } from '../../deploy/local/processes.ts'
import { runtimeOf } from './calls.ts'
import { type Login, type NodeProcess, nodeProcess } from './cluster.ts'
import { Player } from './cluster-player.ts'
import { type Answer, call, type Request } from './control-api.ts'
import { programOr } from './debian-package.ts'
import { freePort, until } from './redis-server.ts'
import { newFolder, processTree, runEnvironment } from './run-folder.ts'

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

/** The load balancers there are configurations for. */
export const BALANCERS = ['haproxy', 'nginx'] as const
export type BalancerKind = (typeof BALANCERS)[number]

/** Settings that are there for some: their lines are marked with `#` and this word. */
type Setting = 'tls' | 'hsts' | 'limit'

/** The text of a configuration with these settings switched on, by taking their marks away. */
export const switchedOn = (text: string, settings: readonly Setting[]): string =>
  settings.reduce((now, setting) => now.replaceAll(new RegExp(`^( *)#${setting} `, 'gm'), '$1'), text)

/** A load balancer that runs the configuration of this repository, at other addresses. */
export interface Balancer {
  readonly wsUrl: string
  readonly controlUrl: string
  readonly operationsUrl: string
  /** Its processes, those that it has started included. */
  pids(): number[]
  /** Everything it has said. */
  output(): string
  /** Puts another certificate in the place of the one it has, and has it read its configuration again, as an operator would. */
  renew(certificate: Certificate): Promise<void>
  close(): Promise<void>
}

const FOLDER = new URL('../../deploy/balancer/', import.meta.url)

const END_MS = 10_000

/** What a test may choose. */
interface BalancerOptions {
  /** So many that share its ports, for more connections than one may have file descriptors (haproxy; nginx has workers). Default 1. */
  readonly processes?: number
  /** Settings that are there for some. With `tls` it needs a certificate, and `places.tls`. */
  readonly settings?: readonly Setting[]
  readonly certificate?: Certificate
}

/** Writes the configuration of a load balancer, with its servers at these places, into a folder; the path of the file. */
async function writeConfiguration(
  folder: string,
  kind: BalancerKind,
  places: Places,
  { settings = [], certificate }: BalancerOptions = {},
): Promise<string> {
  const name = kind === 'haproxy' ? 'haproxy.cfg' : 'nginx.conf'
  const text = switchedOn(await readFile(new URL(name, FOLDER), 'utf8'), settings)
  const placed = kind === 'haproxy' ? haproxyAt(text, places) : nginxAt(text, places)
  const certs = join(folder, 'certs')
  await mkdir(certs)
  if (certificate) await writeCertificate(certs, kind, certificate)
  const file = join(folder, name)
  const own = placed.replaceAll(/\/etc\/(haproxy|nginx)\/certs/g, certs)
  await writeFile(file, own.replace('/var/log/nginx', folder))
  return file
}

/** haproxy reads all that is in the folder, and certificate and key from one file. */
async function writeCertificate(folder: string, kind: BalancerKind, { cert, key }: Certificate) {
  await writeFile(join(folder, 'roomful.pem'), kind === 'haproxy' ? cert + key : cert)
  if (kind === 'nginx') await writeFile(join(folder, 'roomful.key'), key)
}

/** How each is started in the foreground, given its configuration file and a folder of its own. */
const WORDS: Readonly<Record<BalancerKind, (file: string, folder: string) => string[]>> = {
  haproxy: (file) => ['-W', '-db', '-f', file],
  nginx: (file, folder) => ['-e', 'stderr', '-c', file, '-g', `daemon off; pid ${folder}/nginx.pid;`],
}

/** Starts a load balancer in front of servers that run; resolves once it lets requests through to control. */
export async function startBalancer(
  kind: BalancerKind,
  places: Places,
  options: BalancerOptions = {},
): Promise<Balancer> {
  const { processes = 1, certificate } = options
  const folder = await mkdtemp(join(tmpdir(), `roomful-${kind}-`))
  const file = await writeConfiguration(folder, kind, places, options)
  const program = programOr(kind)
  const children = new Children({ folder })
  const args = WORDS[kind](file, folder)
  const balancers = Array.from({ length: processes }, (_, index) =>
    children.add(`${kind}-${index + 1}`, { program, args, env: process.env }),
  )
  const { tls } = places
  const urls = {
    wsUrl: tls ? `wss://${tls.websocket}` : `ws://${places.websocket}`,
    controlUrl: tls ? `https://${tls.control}` : `http://${places.control}`,
    operationsUrl: `http://${places.operations}`,
  }
  const output = (): string => balancers.map(({ logFile }) => readFileSync(logFile, 'utf8')).join('')
  const close = async (): Promise<void> => {
    // Told to end, so that workers end too.
    await Promise.all(balancers.map((balancer) => balancer.endWithin(END_MS)))
    await children.close()
    await rm(folder, { recursive: true, force: true })
  }
  const look = fetchTrusting(certificate?.cert)
  await Promise.all(balancers.map((balancer) => balancer.start()))
  const ready = until(`${kind} lets requests through`, async () => {
    if (balancers.some(({ pid }) => pid === undefined)) throw new Error(output())
    return (await look(`${urls.controlUrl}/readyz`)).ok
  })
  await ready.catch(async (error: unknown) => {
    await close()
    throw error
  })
  const pids = () => balancers.flatMap(({ pid }) => processTree(pid!))
  const renew = async (renewed: Certificate): Promise<void> => {
    await writeCertificate(join(folder, 'certs'), kind, renewed)
    for (const { pid } of balancers) process.kill(pid!, kind === 'haproxy' ? 'SIGUSR2' : 'SIGHUP')
  }
  return { ...urls, pids, output, renew, close }
}

/** A certificate for 127.0.0.1 that vouches for itself, and its key: both PEM, and the files they are in. */
export interface Certificate {
  readonly cert: string
  readonly key: string
  readonly certFile: string
}

const run = promisify(execFile)

/** Makes one with openssl, good for a day. */
export async function makeCertificate(): Promise<Certificate> {
  const folder = await newFolder()
  const [certFile, keyFile] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
  await run(programOr('openssl'), [
    ...['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '1'],
    ...['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost'],
    ...['-keyout', keyFile, '-out', certFile],
  ])
  const [cert, key] = [await readFile(certFile, 'utf8'), await readFile(keyFile, 'utf8')]
  return { cert, key, certFile }
}

/** What is understood of the options of `fetch`. */
interface Asked {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

/**
 * A `fetch` that trusts this certificate (undefined: whom Node trusts), follows no redirect, and takes a connection of its own for each
 * request: that of Node 20 cannot be told whom to trust.
 */
export const fetchTrusting =
  (ca: string | undefined) =>
  (url: string, { method = 'GET', headers = {}, body }: Asked = {}): Promise<Response> =>
    new Promise((resolve, reject) => {
      const send = url.startsWith('https:') ? request : plainRequest
      const asked = send(url, { method, headers: { ...headers }, agent: false, ca }, (answer) => {
        const chunks: Buffer[] = []
        answer.on('data', (chunk: Buffer) => chunks.push(chunk))
        answer.once('error', reject)
        answer.once('end', () => {
          const told = new Headers(answer.headers as Record<string, string>)
          resolve(new Response(Buffer.concat(chunks), { status: answer.statusCode!, headers: told }))
        })
      })
      asked.once('error', reject)
      asked.end(body)
    })
