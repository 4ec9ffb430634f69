import { createWriteStream } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import type { RoomDefinition } from '../../dataplane/room/definition.ts'
import { loadRooms } from '../../dataplane/room/loader.ts'
import { type Backend, startBackend } from '../../examples/backend/backend.ts'
import { ControlClient, OwnProject } from '../../examples/backend/control-client.ts'
import { ownersOf } from '../../examples/backend/nodes.ts'
import { systemClock } from '../../shared/clock.ts'
import { createLog } from '../../shared/log.ts'
import { DEV_TOKEN_SECONDS, devRoutes } from '../cli/dev-routes.ts'
import { endWithNpm } from '../cli/service.ts'
import { banner, command, News, Prompt } from './console.ts'
import { LocalCluster } from './local-cluster.ts'
import { ClusterError } from './processes.ts'

/** `npm run cluster`: a deployment on this machine, and a prompt to break it. */

const HOST = '127.0.0.1'
/** A terminal and npm both pass on the same Ctrl-C. A second signal within this time counts as the same. */
const SAME_MS = 500
/** Time after which a node that a development route has ended is started again. */
const BACK_MS = 4000
const HELP = `Usage: npm run cluster -- [options]

Redis, control processes, nodes, a load balancer and the example games on this machine, with a prompt to break them one by one.

  --nodes N          nodes, 1–9; default 3
  --controls N       control processes, 1–9; default 2
  --free-ports       take any free ports instead of the documented ones

REDIS_URL uses that Redis instead of starting one. Every other variable of roomful (NODE_LEASE_MS, LOG_LEVEL, ROOMS_DIR …) is passed on
to the processes.
`

/** Returns the options of `npm run cluster --`. If one is wrong, the process ends with 2. */
function readWords() {
  try {
    const { values } = parseArgs({
      options: {
        nodes: { type: 'string', default: '3' },
        controls: { type: 'string', default: '2' },
        'free-ports': { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    })
    for (const name of ['nodes', 'controls'] as const)
      if (!/^[1-9]$/.test(values[name])) throw new Error(`--${name} is "${values[name]}"; expected: 1 to 9`)
    return values
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\nSee npm run cluster -- --help.\n`)
    return process.exit(2)
  }
}

async function run(words: ReturnType<typeof readWords>): Promise<void> {
  const prompt = new Prompt()
  const tell = (text: string): void => prompt.tell(text)
  let cluster: LocalCluster | undefined
  let games: Backend | undefined
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
    cluster = await LocalCluster.prepare({
      nodes: Number(words.nodes),
      controls: Number(words.controls),
      documentedPorts: !words['free-ports'],
      balancer: 'auto',
      advertise: true,
      env: process.env,
      tell,
    })
    const running = cluster
    tell(`starting ${[...running.children.keys()].join(', ')}; logs are in ${running.folder}`)
    await running.start()
    const watch = new News({ look: () => running.look(), clock: systemClock, tell })
    const act = (line: string): Promise<void> => command(line, running, watch, tell)
    games = await startGames(running, act)
    if (stoppingSince !== undefined) return
    news = watch
    void news.start()
    tell(banner(running))
    const left = await prompt.read((line) => (/^\s*(quit|exit)\s*$/i.test(line) ? stop(0) : act(line)))
    if (left) await stop(0)
  } catch (error) {
    if (stoppingSince === undefined) fail(error)
  }
}

/**
 * Starts the example games, their backend and the playground in this process, with `cluster` as their server. Resolves when a browser can
 * open them. `act` runs a line of the prompt.
 */
function startGames(cluster: LocalCluster, act: (line: string) => Promise<void>): Promise<Backend> {
  const { folder, ports, secrets, addresses, children, wsUrl, controlUrl } = cluster
  const file = createWriteStream(join(folder, 'games.log'), { flags: 'a' })
  const log = createLog({ logLevel: 'info' }, {}, { write: (line) => void file.write(line) })
  const project = new OwnProject(new ControlClient(controlUrl, secrets.operatorToken))
  let rooms: Promise<RoomDefinition[]> | undefined
  const before = devRoutes({
    issue: (player) => project.issueToken({ ...player, ttl_seconds: DEV_TOKEN_SECONDS }),
    rooms: () => {
      rooms ??= loadRooms(cluster.roomsDir)
      return rooms
    },
    wsUrl: () => wsUrl,
    end: async (how, roomId) => {
      const { project_id: projectId } = await project.credentials()
      const owner = ownersOf(await cluster.look()).get(`${projectId} ${roomId}`)?.owner
      const child = owner === undefined ? undefined : children.get(owner)
      if (!child) return `no node runs ${roomId} at this moment`
      await act(`${how} ${owner}`)
      void child.ended.then(() => systemClock.schedule(BACK_MS, () => void act(`start ${owner}`)))
      return `${owner} ${how === 'kill' ? 'was killed' : 'drains'}; it starts again ${BACK_MS / 1000} s after its end`
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
    before,
    log,
  })
}

const words = readWords()
if (words.help) process.stdout.write(HELP)
else await run(words)
