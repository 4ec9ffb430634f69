import { existsSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { fileURLToPath } from 'node:url'
import { startControl } from '../../control/main.ts'
import { noUrl, webhook } from '../../dataplane/features/notices/notice.ts'
import { type RunningDataplane, startDataplane } from '../../dataplane/main.ts'
import { startBackend } from '../../examples/backend/backend.ts'
import { ControlClient, OwnProject } from '../../examples/backend/control-client.ts'
import { systemClock } from '../../shared/clock.ts'
import type { Config } from '../../shared/config.ts'
import { newId, randomToken } from '../../shared/ids.ts'
import type { Json } from '../../shared/json.ts'
import type { Logger } from '../../shared/log.ts'
import { notifyKeys } from '../../shared/notify-keys.ts'
import { systemRandom } from '../../shared/random.ts'
import { openStore } from '../../shared/store/open.ts'
import { openTracing, tracingConfig } from '../../shared/tracing/open.ts'
import { packageVersion } from '../../shared/version.ts'
import { runBeside } from './beside.ts'
import { ShownNotices } from './dev-notices.ts'
import {
  callRoom,
  DEV_TOKEN_SECONDS,
  type DevCall,
  type DevPlayer,
  devRoutes,
  type Issue,
} from './dev-routes.ts'
import { defaultHost, lanText, openLan } from './lan.ts'
import type { Service } from './service.ts'

interface DevParts {
  readonly config: Config<'dev'>
  readonly log: Logger
  /** Shows a text at the terminal. */
  readonly tell: (text: string) => void
  /** Words of a command that runs as long as this process, and ends it. */
  readonly beside?: readonly string[] | undefined
  /** Addresses of this machine at which other devices of the network reach the page. Absent: other devices do not reach it. */
  readonly lan?: readonly string[] | undefined
}

/** Folder of a game's room types. */
const OWN_ROOMS = 'rooms'
const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url))

/**
 * Both planes in one process, and the example games with their backend if there are no other room types. The planes communicate over HTTP
 * and the store, as in a deployment. Without a configured internal token, a random one is used and shown only at the terminal.
 */
export async function startDev({ config, log, tell, beside, lan }: DevParts): Promise<Service> {
  const parts = { clock: systemClock, random: systemRandom }
  const internalToken = config.internalToken ?? randomToken(systemRandom, 24)
  const running: (() => Promise<void>)[] = []
  const close = async (): Promise<void> => {
    for (const end of running.reverse()) await end()
  }
  try {
    const store = await openStore({ ...config, log, ...parts })
    running.push(() => store.close())
    const trace = async (serviceName: string, instanceId: string) => {
      const tracing = await openTracing({
        config: tracingConfig(config, serviceName),
        instanceId,
        log,
        ...parts,
      })
      running.push(() => tracing.close())
      return tracing.tracer
    }
    const control = await startControl({
      config: { ...config, internalToken },
      store,
      log,
      tracer: await trace('roomful-control', randomToken(systemRandom, 16)),
      ...parts,
    })
    running.push(() => control.close())
    // There is no other node for the clients, so waiting for their moves would only delay the end.
    // In a store that others use as well, the node needs a unique name.
    const nodeId = config.nodeId ?? (store.kind === 'memory' ? 'node-1' : newId('node', systemRandom))
    const roomsDir = config.roomsDir ?? (existsSync(OWN_ROOMS) ? OWN_ROOMS : undefined)
    const dataplane = {
      ...config,
      roomsDir: roomsDir ?? EXAMPLES,
      nodeId,
      internalToken,
      controlUrl: control.url,
      drainSeconds: 0,
    }
    const tracer = await trace('roomful-dataplane', nodeId)
    const { controlApiTokens = [] } = config
    const controlToken = controlApiTokens === 'none' ? undefined : controlApiTokens[0]
    const client = new ControlClient(control.url, controlToken)
    // The example games have a project. With a rooms folder, the tokens are for the project of the developer's backend.
    const project = roomsDir === undefined ? new OwnProject(client) : new NewestProject(client)
    const projectId = project instanceof NewestProject ? await project.id() : undefined
    const issue: Issue = (player) => project.issueToken({ ...player, ttl_seconds: DEV_TOKEN_SECONDS })
    const call = async (asked: DevCall): Promise<Json> =>
      callRoom({ url: control.url, key: controlToken ?? '', projectId: await project.id() }, asked)
    const notices = new ShownNotices()
    const lanHosts = new Set<string>()
    const openToNetwork = async (page: string): Promise<void> => {
      const secret = randomToken(systemRandom, LAN_SECRET_LENGTH)
      const websocket = node.addresses.websocket
      const network = { page, websocket, root: process.cwd(), secret, issue, clock: systemClock }
      const { origins, close } = await openLan({ ...network, hosts: lan ?? [] })
      running.push(close)
      for (const origin of origins) lanHosts.add(new URL(origin).host)
      tell(lanText(origins, secret, await defaultHost()))
    }
    const routes = devRoutes({
      issue,
      rooms: () => node.rooms(),
      wsUrl: () => node.addresses.websocket,
      call,
      notices: () => notices.latest,
      log,
    })
    const { notifyUrl: url, notifySecret: secrets = [] } = config
    const node: RunningDataplane = await startDataplane({
      config: dataplane,
      store,
      log,
      tracer,
      answer: (request, response) => void (routes(request, response) || whatIsHere(response)),
      postNotice: notices.through(url === undefined ? noUrl : webhook({ url, secrets, clock: systemClock })),
      development: true,
    })
    running.push(() => node.close())
    const addresses: Record<string, string> = { api: control.url, ...node.addresses }
    if (roomsDir === undefined) {
      const backend = await startBackend({
        host: config.wsHost,
        port: config.examplesPort,
        control_url: control.url,
        ...(controlToken !== undefined && { control_token: controlToken }),
        ws_url: node.addresses.websocket,
        nodes: { addresses: [{ admin_url: node.addresses.admin }], internal_token: internalToken },
        lanHosts,
        before: routes,
        log,
      })
      running.push(() => backend.close())
      addresses.games = backend.url
    }
    const madeUpToken = config.internalToken === undefined ? internalToken : undefined
    tell(banner({ ...addresses, projectId }, store.kind, madeUpToken))
    if (lan && addresses.games !== undefined) await openToNetwork(addresses.games)
    if (!beside) return { addresses, close, ended: node.ended, unhandled: node.unhandled }
    const environment = {
      ROOMFUL_URL: node.addresses.websocket,
      VITE_ROOMFUL_URL: node.addresses.websocket,
      CONTROL_URL: control.url,
      ...(projectId !== undefined && {
        PROJECT_ID: projectId,
        ...(config.notifySecret && { NOTIFY_KEY: notifyKeys(config.notifySecret, projectId).join(',') }),
      }),
    }
    const isPage = lan && addresses.games === undefined
    const child = runBeside(beside, environment, {
      stdin: 'inherit',
      ...(isPage && { onPage: (page: string) => void openToNetwork(page) }),
    })
    running.push(child.end)
    return { addresses, close, ended: Promise.race([node.ended, child.ended]), unhandled: node.unhandled }
  } catch (error) {
    await close()
    throw error
  }
}

/** Characters of the secret of `--lan`, which has more than 128 random bits. */
const LAN_SECRET_LENGTH = 22

/** Page for a browser that opens the websocket's port. */
function whatIsHere(response: ServerResponse): void {
  response.writeHead(426, { 'content-type': 'text/plain; charset=utf-8' })
  response.end('This is the websocket port of roomful dev; a page to play rooms by hand is at /playground.\n')
}

/** Returns the addresses, for the terminal. */
function banner(
  { games, websocket = '', api, admin, projectId }: Readonly<Record<string, string | undefined>>,
  store: 'memory' | 'redis',
  madeUpToken: string | undefined,
): string {
  const lines = [
    ...(games === undefined ? [] : [['play', games]]),
    ['playground', `${websocket.replace('ws', 'http')}/playground`],
    ['websocket', websocket],
    ['control API', `${api}/docs`],
    ...(projectId === undefined ? [] : [['project', projectId]]),
    ['admin', `${admin}/admin${madeUpToken === undefined ? '' : `#token=${madeUpToken}`}`],
    [
      'store',
      store === 'redis' ? 'Redis' : 'memory: rooms end with this process; REDIS_URL=redis://… keeps them',
    ],
  ]
  const rows = lines.map(([what = '', where = '']) => `  ${what.padEnd(13)}${where}`)
  return `\n  roomful ${packageVersion()}\n\n${rows.join('\n').replaceAll('//127.0.0.1:', '//localhost:')}\n\n`
}

/**
 * Returns the project of a developer: the newest one, which the developer's backend may have created. Without one, creates it. So players
 * of `connect({ dev })` and of the playground join the rooms of the developer's clients.
 */
class NewestProject {
  readonly #control: ControlClient

  constructor(control: ControlClient) {
    this.#control = control
  }

  /** Rejects with a ControlError. */
  async id(): Promise<string> {
    const [newest] = await this.#control.projects()
    return (newest ?? (await this.#control.createProject('development'))).id
  }

  /** Returns a client token for a player. Rejects with a ControlError. */
  async issueToken(player: DevPlayer & { readonly ttl_seconds: number }) {
    const id = await this.id()
    const { token } = await this.#control.issueToken({ project_id: id, ...player })
    return { project_id: id, token }
  }
}
