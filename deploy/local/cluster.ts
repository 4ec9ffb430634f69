import { createWriteStream } from 'node:fs'
import { extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { RoomDefinition } from '../../dataplane/rooms/definition.ts'
import { loadRooms } from '../../dataplane/rooms/loader.ts'
import { type Backend, startBackend } from '../../examples/backend/backend.ts'
import { ControlClient, OwnProject } from '../../examples/backend/control-client.ts'
import { ownersOf } from '../../examples/backend/nodes.ts'
import { systemClock } from '../../shared/clock.ts'
import { createLog } from '../../shared/log.ts'
import { systemRandom } from '../../shared/random.ts'
import { DEV_TOKEN_SECONDS, devRoutes } from '../cli/dev-routes.ts'
import { endWithNpm } from '../cli/npm-parent.ts'
import { banner, Commands } from './commands.ts'
import { LocalCluster } from './local-cluster.ts'
import { News } from './news.ts'
import type { ClusterOptions } from './options.ts'
import { OPTIONS_HELP, parseOptions } from './options.ts'
import { ClusterError } from './processes.ts'
import { Prompt } from './prompt.ts'

/** `npm run cluster`: a whole deployment on this machine, and a prompt to break it. */

const HOST = '127.0.0.1'
/** A terminal and npm both pass the same Ctrl-C on: what comes so soon after the first is the same. */
const SAME_MS = 500
/** After which a node starts again that was killed in the playground. */
const BACK_MS = 4000
const ROOMFUL = fileURLToPath(new URL(`../cli/roomful${extname(import.meta.url)}`, import.meta.url))

const request = parseOptions(process.argv.slice(2))
if (request.kind === 'help') process.stdout.write(OPTIONS_HELP)
else if (request.kind === 'mistake') {
  process.stderr.write(`${request.message}\nnpm run cluster -- --help says more.\n`)
  process.exitCode = 2
} else void run(request.options)

async function run(options: ClusterOptions): Promise<void> {
  let cluster: LocalCluster | undefined
  let games: Backend | undefined
  let news: News | undefined
  let commands: Commands | undefined
  let stoppingSince: number | undefined

  const stop = async (code: number): Promise<void> => {
    if (stoppingSince !== undefined) {
      if (systemClock.monotonic() - stoppingSince < SAME_MS) return
      cluster?.abandon()
      process.exit(1)
    }
    stoppingSince = systemClock.monotonic()
    prompt.close()
    prompt.tell('ending everything; once more ends it at once')
    news?.stop()
    await games?.close()
    await cluster?.close()
    if (cluster) prompt.tell(`everything has ended; the logs stay in ${cluster.folder}`)
    process.exit(code)
  }
  const fail = (error: unknown): void => {
    const expected = error instanceof ClusterError
    prompt.tell(
      expected ? error.message : error instanceof Error ? (error.stack ?? error.message) : String(error),
    )
    void stop(1)
  }

  const prompt = new Prompt({
    input: process.stdin,
    output: process.stdout,
    onLine: async (line) => {
      if ((await commands?.run(line)) === 'quit') void stop(0)
    },
    onInterrupt: () => void stop(0),
  })
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => void stop(0))
  process.on('uncaughtException', fail)
  process.on('unhandledRejection', fail)
  process.on('exit', () => cluster?.abandon())
  // No one reads any more: what is told is lost, and that is all.
  process.stdout.on('error', () => undefined)
  endWithNpm(process, systemClock)

  try {
    cluster = await LocalCluster.prepare({
      options,
      env: process.env,
      roomful: [...process.execArgv, ROOMFUL],
      clock: systemClock,
      random: systemRandom,
      tell: (line) => prompt.tell(line),
    })
    prompt.tell(`starting ${[...cluster.children.keys()].join(', ')}; logs are in ${cluster.folder}`)
    await cluster.start()
    games = await startGames(cluster, async (line) => commands?.run(line))
  } catch (error) {
    if (stoppingSince === undefined) fail(error)
    return
  }
  if (stoppingSince !== undefined) return
  const tell = (text: string): void => prompt.tell(text)
  news = new News({ nodes: cluster.nodes, clock: systemClock, tell })
  news.start()
  commands = new Commands(cluster, news, tell)
  prompt.tell(banner(cluster))
  prompt.open()
}

/**
 * Starts the example games, their backend and the playground in this process, playing on `cluster`; resolves when they can be opened in a browser.
 * `command` does what a line at the prompt does.
 */
function startGames(
  { folder, ports, secrets, addresses, nodes, roomsDir }: LocalCluster,
  command: (line: string) => Promise<unknown>,
): Promise<Backend> {
  const file = createWriteStream(join(folder, 'games.log'), { flags: 'a' })
  const log = createLog(
    { logLevel: 'info', logFormat: 'json' },
    {},
    { write: (line) => void file.write(line) },
  )
  const controlUrl = `http://${HOST}:${ports.api}`
  const wsUrl = `ws://${HOST}:${ports.websocket}`
  const project = new OwnProject(new ControlClient(controlUrl, secrets.operatorToken))
  let rooms: Promise<RoomDefinition[]> | undefined
  const routes = devRoutes({
    issue: (sub) => project.issueToken({ sub, ttl_seconds: DEV_TOKEN_SECONDS }),
    rooms: () => {
      rooms ??= loadRooms(roomsDir)
      return rooms
    },
    wsUrl: () => wsUrl,
    kill: async (roomId) => {
      const { project_id: projectId } = await project.credentials()
      const owner = ownersOf(await nodes.look()).get(`${projectId} ${roomId}`)?.owner
      if (owner === undefined) return `no node runs ${roomId} at this moment`
      await command(`kill ${owner}`)
      systemClock.schedule(BACK_MS, () => void command(`start ${owner}`))
      return `${owner} was killed; it starts again in ${BACK_MS / 1000} s`
    },
    log,
  })
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
