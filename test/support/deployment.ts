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
import { Player } from '../players/ledger.ts'
import { runtimeOf } from './calls.ts'
import { type Login, type NodeProcess, nodeProcess } from './cluster.ts'
import { type Answer, call, type Request } from './control-api.ts'
import { programOr } from './debian-package.ts'
import { freePort, until } from './redis-server.ts'
import { newFolder, processTree, runEnvironment } from './run-folder.ts'

/** Options of `Deployment.start`. */
interface DeploymentOptions {
  readonly balancer: BalancerKind
  readonly controls?: number
  readonly nodes?: number
  /** Additional variables of every node. */
  readonly nodeEnv?: Readonly<Record<string, string>>
  /** Number of processes of the balancer. */
  readonly balancerProcesses?: number
  /** Certificate of the balancer. With it, all clients and nodes use TLS. */
  readonly certificate?: Certificate
}

/** A process `roomful control`. */
export interface ControlProcess {
  /** Address of this process. It bypasses the balancer. */
  readonly url: string
  kill(): void
}

const HOST = '127.0.0.1'
const at = (port: number): string => `${HOST}:${port}`

/** Processes of control and nodes with one Redis, behind a load balancer. */
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

  /** Resolves when all processes are ready. */
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
        ROOMS_DIR: inject('clusterRooms'),
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

  /** Addresses for the configuration of the balancer. */
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

  /** Calls the control API through the balancer. */
  call(line: string, request: Request = {}): Promise<Answer> {
    const { certificate } = this.#options
    const send = certificate ? fetchTrusting(certificate.cert) : fetch
    return call(this.balancer.controlUrl, line, { as: this.operatorToken, ...request }, send)
  }

  /** Calls the control API of one process. The call bypasses the balancer. */
  callAt(control: ControlProcess, line: string, request: Request = {}): Promise<Answer> {
    return call(control.url, line, { as: this.operatorToken, ...request })
  }

  /** Creates a project and a token for its players. */
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

  /** Returns the edge of a member, from the description of the room's owner. */
  async nodeOf(roomId: string, player: Player): Promise<string | undefined> {
    const room = await this.room(roomId)
    return room?.members.find(({ member_id: memberId }) => memberId === player.id)?.node_id
  }

  /** Returns the owner's description of a room. Undefined: no open node runs the room. */
  async room(roomId: string): Promise<RoomDescription | undefined> {
    const open = this.nodes.filter((node) => node.open)
    const all = await Promise.all(open.map((node) => this.runtime(node)))
    return all.flatMap(({ rooms }) => rooms).find((room) => room.room_id === roomId)
  }

  /** Returns the rooms and sessions of a node. */
  runtime({ adminUrl }: NodeProcess) {
    return runtimeOf(adminUrl, this.internalToken)
  }

  /** Ends all players. The processes continue for the next test. */
  reset(): void {
    for (const player of this.#players.splice(0)) player.close()
  }

  /** Ends all players, and restarts each process that a test has ended or suspended. */
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

/** Load balancers that the repository has a configuration for. */
export const BALANCERS = ['haproxy', 'nginx'] as const
export type BalancerKind = (typeof BALANCERS)[number]

/** Optional settings. Their lines in a configuration are comments that start with `#` and this word. */
type Setting = 'tls' | 'hsts' | 'limit'

/** Returns the text of a configuration without the marks of these settings. */
export const switchedOn = (text: string, settings: readonly Setting[]): string =>
  settings.reduce((now, setting) => now.replaceAll(new RegExp(`^( *)#${setting} `, 'gm'), '$1'), text)

/** A load balancer with the configuration of this repository and other addresses. */
interface Balancer {
  readonly wsUrl: string
  readonly controlUrl: string
  readonly operationsUrl: string
  /** Its processes and their children. */
  pids(): number[]
  /** All output of its processes. */
  output(): string
  /** Replaces the certificate and reloads the configuration, like an operator. */
  renew(certificate: Certificate): Promise<void>
  close(): Promise<void>
}

const FOLDER = new URL('../../deploy/balancer/', import.meta.url)

const END_MS = 10_000

/** Options of `startBalancer`. */
interface BalancerOptions {
  /** Number of processes that share the ports. Each has its own limit of file descriptors (haproxy; nginx has workers). Default 1. */
  readonly processes?: number
  /** Optional settings. `tls` needs a certificate and `places.tls`. */
  readonly settings?: readonly Setting[]
  readonly certificate?: Certificate
}

/** Writes the configuration of a load balancer for these addresses into a folder. Returns the path of the file. */
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

/** haproxy reads all files of the folder, and expects certificate and key in one file. */
async function writeCertificate(folder: string, kind: BalancerKind, { cert, key }: Certificate) {
  await writeFile(join(folder, 'roomful.pem'), kind === 'haproxy' ? cert + key : cert)
  if (kind === 'nginx') await writeFile(join(folder, 'roomful.key'), key)
}

/** Arguments that start a balancer in the foreground. */
const ARGUMENTS: Readonly<Record<BalancerKind, (file: string, folder: string) => string[]>> = {
  haproxy: (file) => ['-W', '-db', '-f', file],
  nginx: (file, folder) => ['-e', 'stderr', '-c', file, '-g', `daemon off; pid ${folder}/nginx.pid;`],
}

/** Starts a load balancer in front of running servers. Resolves when `/readyz` of control answers through it. */
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
  const args = ARGUMENTS[kind](file, folder)
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
    // SIGTERM first: SIGKILL would leave the workers running.
    await Promise.all(balancers.map((balancer) => balancer.endWithin(END_MS)))
    await children.close()
    await rm(folder, { recursive: true, force: true })
  }
  const get = fetchTrusting(certificate?.cert)
  await Promise.all(balancers.map((balancer) => balancer.start()))
  const ready = until(`${kind} forwards requests`, async () => {
    if (balancers.some(({ pid }) => pid === undefined)) throw new Error(output())
    return (await get(`${urls.controlUrl}/readyz`)).ok
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

/** A self-signed certificate for 127.0.0.1 and localhost. */
export interface Certificate {
  /** PEM. */
  readonly cert: string
  /** PEM. */
  readonly key: string
  readonly certFile: string
}

const run = promisify(execFile)

/** Creates a certificate with openssl that is valid for a day. */
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

/** Supported options of `fetch`. */
interface FetchOptions {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

/**
 * Returns a `fetch` that trusts this certificate, follows no redirect, and opens a connection for each request. Undefined: the certificates
 * that Node trusts. The `fetch` of Node 20 has no option for a certificate.
 */
export const fetchTrusting =
  (ca: string | undefined) =>
  (url: string, { method = 'GET', headers = {}, body }: FetchOptions = {}): Promise<Response> =>
    new Promise((resolve, reject) => {
      const send = url.startsWith('https:') ? request : plainRequest
      const sent = send(url, { method, headers: { ...headers }, agent: false, ca }, (answer) => {
        const chunks: Buffer[] = []
        answer.on('data', (chunk: Buffer) => chunks.push(chunk))
        answer.once('error', reject)
        answer.once('end', () => {
          const received = new Headers(answer.headers as Record<string, string>)
          resolve(new Response(Buffer.concat(chunks), { status: answer.statusCode!, headers: received }))
        })
      })
      sent.once('error', reject)
      sent.end(body)
    })
