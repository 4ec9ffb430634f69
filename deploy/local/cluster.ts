import { createWriteStream, existsSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { noUrl, type PostNotice, webhook } from '../../dataplane/features/notices/notice.ts'
import type { RoomDefinition } from '../../dataplane/room/definition.ts'
import { loadRooms } from '../../dataplane/room/loader.ts'
import { type Backend, startBackend } from '../../examples/backend/backend.ts'
import { ControlClient, OwnProject } from '../../examples/backend/control-client.ts'
import { ownersOf } from '../../examples/backend/nodes.ts'
import { systemClock } from '../../shared/clock.ts'
import { createLog, type Logger } from '../../shared/log.ts'
import { notifyKeys } from '../../shared/notify-keys.ts'
import { systemRandom } from '../../shared/random.ts'
import { runBeside } from '../cli/beside.ts'
import { ShownNotices } from '../cli/dev-notices.ts'
import { callRoom, DEV_TOKEN_SECONDS, devRoutes } from '../cli/dev-routes.ts'
import { endWithNpm } from '../cli/service.ts'
import { banner, command, News, Prompt } from './console.ts'
import { startFront } from './front.ts'
import { LocalCluster } from './local-cluster.ts'
import { ClusterError } from './processes.ts'

/** `roomful cluster`: a deployment on this machine, and a prompt to break it. */

const HOST = '127.0.0.1'
/** A terminal and npm both pass on the same Ctrl-C. A second signal within this time counts as the same. */
const SAME_MS = 500
/** Time after which a node that a development route has ended is started again. */
const BACK_MS = 4000
/** Folder of a game's room types. */
const OWN_ROOMS = 'rooms'
const HELP = `Usage: roomful cluster [options] [-- COMMAND …]

Redis, control processes, nodes and a load balancer on this machine, with a prompt to break them one by one. Plays the room types in
ROOMS_DIR, else in ./rooms, else the example games.

  --nodes N          nodes, 1–9; default 3
  --controls N       control processes, 1–9; default 2
  --free-ports       use free ports instead of the documented ones
  -- COMMAND         also runs this command, such as the server of your page, with ROOMFUL_URL, VITE_ROOMFUL_URL, CONTROL_URL, ROOMFUL_KEY and
                     PROJECT_ID and NOTIFY_KEY in its environment

With REDIS_URL, it uses that Redis. Every other variable of roomful (NODE_LEASE_MS, LOG_LEVEL …) is passed on to the
processes.
`

/** Returns the options of `roomful cluster`. Throws if one is wrong. */
function readWords(all: readonly string[]) {
  const end = all.indexOf('--')
  const { values } = parseArgs({
    args: end < 0 ? [...all] : all.slice(0, end),
    options: {
      nodes: { type: 'string', default: '3' },
      controls: { type: 'string', default: '2' },
      'free-ports': { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  for (const name of ['nodes', 'controls'] as const)
    if (!/^[1-9]$/.test(values[name])) throw new Error(`--${name} is "${values[name]}"; expected: 1 to 9`)
  const beside = end < 0 ? undefined : all.slice(end + 1)
  if (beside?.length === 0) throw new Error('there is no command after --, as in roomful cluster -- vite')
  return { ...values, beside }
}

/** Runs `roomful cluster` with these words until it ends the process. */
export async function runCluster(all: readonly string[]): Promise<void> {
  try {
    const words = readWords(all)
    if (words.help) process.stdout.write(HELP)
    else await run(words)
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\nSee roomful cluster --help.\n`)
    process.exitCode = 2
  }
}

async function run(words: ReturnType<typeof readWords>): Promise<void> {
  const prompt = new Prompt()
  const tell = (text: string): void => prompt.tell(text)
  let cluster: LocalCluster | undefined
  let games: { close(): Promise<void> } | undefined
  let beside: ReturnType<typeof runBeside> | undefined
  let news: News | undefined
  let stoppingSince: number | undefined

  const stop = async (code: number): Promise<void> => {
    if (stoppingSince !== undefined) {
      if (systemClock.monotonic() - stoppingSince < SAME_MS) return
      cluster?.abandon()
      process.exit(1)
    }
    stoppingSince = systemClock.monotonic()
    prompt.close()
    tell('ending everything; once more ends it immediately')
    news?.stop()
    await beside?.end()
    await games?.close()
    await cluster?.close()
    if (cluster) tell(`everything has ended; the logs stay in ${cluster.folder}`)
    process.exit(code)
  }
  const fail = (error: unknown): void => {
    if (error instanceof ClusterError) tell(error.message)
    else tell(error instanceof Error ? (error.stack ?? error.message) : String(error))
    void stop(1)
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => void stop(0))
  process.on('uncaughtException', fail)
  process.on('unhandledRejection', fail)
  process.on('exit', () => cluster?.abandon())
  // No process reads the output any more. The text is lost, and the cluster continues.
  process.stdout.on('error', () => undefined)
  endWithNpm(process, systemClock)

  try {
    const roomsDir = process.env.ROOMS_DIR ?? (existsSync(OWN_ROOMS) ? OWN_ROOMS : undefined)
    const { NOTIFY_URL: notifyUrl, NOTIFY_SECRET: notifySecret } = process.env
    if (notifyUrl && !/^https?:/.test(URL.canParse(notifyUrl) ? notifyUrl : ''))
      throw new ClusterError(
        `NOTIFY_URL is ${notifyUrl}: use an address such as http://127.0.0.1:5173/api/notices`,
      )
    const secrets = notifySecret?.split(',') ?? [
      `whsec_${Buffer.from(systemRandom.bytes(32)).toString('base64')}`,
    ]
    cluster = await LocalCluster.prepare({
      nodes: Number(words.nodes),
      controls: Number(words.controls),
      documentedPorts: !words['free-ports'],
      balancer: 'auto',
      advertise: true,
      env: { ...process.env, ...(roomsDir !== undefined && { ROOMS_DIR: roomsDir }) },
      // Nodes send their notices through this process, which shows them in the playground.
      envOf: () => ({
        NOTIFY_URL: `http://${HOST}:${cluster?.ports.games}/dev/notices`,
        NOTIFY_SECRET: secrets.join(','),
      }),
      tell,
    })
    const running = cluster
    tell(`starting ${[...running.children.keys()].join(', ')}; logs are in ${running.folder}`)
    await running.start()
    const watch = new News({ look: () => running.look(), clock: systemClock, tell })
    const act = (line: string): Promise<void> => command(line, running, watch, tell)
    const project = new OwnProject(new ControlClient(running.controlUrl, running.secrets.operatorToken))
    const file = createWriteStream(join(running.folder, 'games.log'), { flags: 'a' })
    const log = createLog({ logLevel: 'info' }, {}, { write: (line) => void file.write(line) })
    const backend = notifyUrl ? webhook({ url: notifyUrl, secrets, clock: systemClock }) : noUrl
    const routes = routesOf(running, { project, log, act, backend })
    const rooms = roomsDir === undefined ? 'games' : 'own'
    games =
      rooms === 'games'
        ? await startGames(running, { routes, log })
        : await startFront({ host: HOST, port: running.ports.games, wsUrl: running.wsUrl, routes })
    if (stoppingSince !== undefined) return
    news = watch
    void news.start()
    tell(banner(running, rooms))
    if (words.beside) {
      const projectId = await project.id()
      beside = runBeside(words.beside, environmentOf(running, projectId, secrets), { stdin: 'ignore' })
      beside.ended.then(() => stop(0), fail)
    }
    const left = await prompt.read((line) => (/^\s*(quit|exit)\s*$/i.test(line) ? stop(0) : act(line)))
    if (left) await stop(0)
  } catch (error) {
    if (stoppingSince === undefined) fail(error)
  }
}

/** Returns the development routes, with `cluster` as their server. `act` runs a line of the prompt. */
function routesOf(
  cluster: LocalCluster,
  {
    project,
    log,
    act,
    backend,
  }: {
    readonly project: OwnProject
    readonly log: Logger
    readonly act: (line: string) => Promise<void>
    readonly backend: PostNotice
  },
) {
  let rooms: Promise<RoomDefinition[]> | undefined
  const notices = new ShownNotices()
  return devRoutes({
    issue: (player) => project.issueToken({ ...player, ttl_seconds: DEV_TOKEN_SECONDS }),
    rooms: () => {
      rooms ??= loadRooms(cluster.roomsDir)
      return rooms
    },
    wsUrl: () => cluster.wsUrl,
    end: async (how, roomId) => {
      const projectId = await project.id()
      const owner = ownersOf(await cluster.look()).get(`${projectId} ${roomId}`)?.owner
      const child = owner === undefined ? undefined : cluster.children.get(owner)
      if (!child) return `no node runs ${roomId} at this moment`
      await act(`${how} ${owner}`)
      void child.ended.then(() => systemClock.schedule(BACK_MS, () => void act(`start ${owner}`)))
      return `${owner} ${how === 'kill' ? 'was killed' : 'drains'}; it starts again ${BACK_MS / 1000} s after its end`
    },
    call: async (asked) =>
      callRoom(
        { url: cluster.controlUrl, key: cluster.secrets.operatorToken, projectId: await project.id() },
        asked,
      ),
    notices: () => notices.latest,
    postNotice: notices.through(backend),
    log,
  })
}

/** Starts the example games and their backend in this process, with `cluster` as their server. Resolves when a browser can open them. */
function startGames(
  { ports, secrets, addresses, wsUrl, controlUrl }: LocalCluster,
  { routes, log }: { readonly routes: ReturnType<typeof devRoutes>; readonly log: Logger },
): Promise<Backend> {
  return startBackend({
    host: HOST,
    port: ports.games,
    control_url: controlUrl,
    control_token: secrets.operatorToken,
    ws_url: wsUrl,
    nodes: { addresses, internal_token: secrets.internalToken },
    before: routes,
    log,
  })
}

/** Returns the variables of the command beside the cluster. */
function environmentOf(
  { ports, secrets, controlUrl }: LocalCluster,
  projectId: string,
  notifySecrets: readonly string[],
) {
  const url = `ws://${HOST}:${ports.games}`
  return {
    ROOMFUL_URL: url,
    VITE_ROOMFUL_URL: url,
    CONTROL_URL: controlUrl,
    ROOMFUL_KEY: secrets.operatorToken,
    PROJECT_ID: projectId,
    NOTIFY_KEY: notifyKeys(notifySecrets, projectId).join(','),
  }
}
