import { postgresSchema } from '../../dataplane/features/saves/postgres.ts'
import { systemClock } from '../../shared/clock.ts'
import {
  type Command,
  type Config,
  describeProblems,
  type Environment,
  type Parsed,
  parseConfig,
} from '../../shared/config.ts'
import { newId, randomToken } from '../../shared/ids.ts'
import { createLog, type LogConfig, type Logger, LogOutput } from '../../shared/log.ts'
import { systemRandom } from '../../shared/random.ts'
import { openStore } from '../../shared/store/open.ts'
import type { Store } from '../../shared/store/port.ts'
import { openTracing, tracingConfig } from '../../shared/tracing/open.ts'
import type { Tracer } from '../../shared/tracing/tracer.ts'
import { packageVersion } from '../../shared/version.ts'
import { helpText, parseArguments } from './arguments.ts'
import { endWithNpm, finish, live, type Service } from './service.ts'
import { TerminalLog } from './terminal-log.ts'
import { startGroup, ThisWorker } from './workers.ts'

/** The command line. A command imports only the modules that it runs. */

const system = { clock: systemClock, random: systemRandom }

/** Writes a text to the terminal. The process then exits with the code for wrong words or variables. */
function complain(text: string): void {
  process.stderr.write(text)
  process.exitCode = 2
}

/** Options of `dev`, see `DevParts`. */
interface DevOptions {
  readonly beside?: readonly string[] | undefined
  readonly lan?: boolean | undefined
}

/** Starts a command. */
function runCommand(command: Exclude<Command, 'admin'>, env: Environment, options: DevOptions): void {
  const worker = ThisWorker.of(env)
  const serve = (start: () => Promise<Service>, log: Logger): void =>
    worker
      ? live(
          `${command} worker ${worker.number}`,
          () => start().then((it) => worker.announce(it, log)),
          log,
          worker.host,
        )
      : live(command, start, log, process)
  switch (command) {
    case 'control':
      withConfig(command, parseConfig(command, env), (config, log) =>
        config.workers === undefined
          ? serve(() => startControlService(config, log, worker), log)
          : serve(() => startGroup({ command, config }, log), log),
      )
      break
    case 'dataplane':
      withConfig(command, withNodeId(parseConfig(command, env)), (config, log) =>
        config.workers === undefined
          ? serve(() => startNodeService(config, log, worker), log)
          : serve(() => startGroup({ command, config }, log), log),
      )
      break
    case 'dev': {
      const parsed = parseConfig(command, env)
      const terminal = isForDeveloper(parsed) ? new TerminalLog(terminalOutput()) : undefined
      const start = (config: Config<'dev'>, log: Logger): void =>
        serve(() => startDevService(config, log, options, terminal), log)
      withConfig(command, parsed, start, terminal)
      break
    }
    case 'rekey':
      withConfig(command, parseConfig(command, env), (config, log) =>
        finish(command, () => rekey(config, log), log, process),
      )
  }
}

/** Calls `start` with a valid configuration. Otherwise writes all errors to the terminal. */
function withConfig<C extends LogConfig & { readonly nodeId?: string | undefined }>(
  command: Command,
  parsed: Parsed<C>,
  start: (config: C, log: Logger) => void,
  terminal?: TerminalLog,
): void {
  if (!parsed.ok) {
    complain(
      `roomful ${command} cannot start: its configuration is not valid.\n${describeProblems(parsed)}\n` +
        `roomful ${command} --help lists every variable.\n`,
    )
    return
  }
  const { config, warnings } = parsed
  const fields: Record<string, string> = config.nodeId === undefined ? {} : { node_id: config.nodeId }
  const log = terminal ? createLog({ logLevel: 'debug' }, fields, terminal) : createLog(config, fields)
  for (const warning of warnings) log.warn(warning)
  start(config, log)
}

type NodeConfig = Config<'dataplane'> & { readonly nodeId: string }

/** Gives a node without a name a random one, before its first log line. */
function withNodeId(parsed: Parsed<Config<'dataplane'>>): Parsed<NodeConfig> {
  if (!parsed.ok) return parsed
  const { config } = parsed
  return { ...parsed, config: { ...config, nodeId: config.nodeId ?? newId('node', systemRandom) } }
}

/** Returns the output of the terminal. A closed terminal does not end the process. */
const terminalOutput = (): LogOutput =>
  new LogOutput({
    stream: process.stdout,
    errors: process.stderr,
    format: (text) => text,
    onRecovered: () => undefined,
  })

/** True if `roomful dev` shows lines for a game's developer instead of the log: without LOG_LEVEL, also behind a pipe. */
const isForDeveloper = (parsed: Parsed<Config<'dev'>>): boolean =>
  parsed.ok && parsed.config.logLevel === undefined

/** Opens the traces and the store of a process, starts its service, and closes them after it. */
async function served(
  config: Config<'control'> | Config<'dataplane'>,
  { name, instanceId, log }: { name: string; instanceId: string; log: Logger },
  start: (store: Store, tracer: Tracer) => Promise<Service>,
): Promise<Service> {
  const tracing = await openTracing({ config: tracingConfig(config, name), instanceId, log, ...system })
  const store = await openStore({ ...config, log, ...system })
  try {
    const service = await start(store, tracing.tracer)
    const close = (drainMs?: number) =>
      service
        .close(drainMs)
        .finally(() => store.close())
        .finally(() => tracing.close())
    const reload = () =>
      log.warn('SIGHUP replaces workers, but this process has none (WORKERS sets their number)')
    return { reload, ...service, close }
  } catch (error) {
    await store.close()
    throw error
  }
}

async function startControlService(
  config: Config<'control'>,
  log: Logger,
  worker?: ThisWorker,
): Promise<Service> {
  const { startControl } = await import('../../control/main.ts')
  const instanceId = randomToken(systemRandom, 16)
  return served(config, { name: 'roomful-control', instanceId, log }, async (store, tracer) => {
    const sharing = worker && {
      worker: String(worker.number),
      metrics: worker.metricsOfAll,
      setLogLevel: worker.setLogLevel,
    }
    const control = await startControl({ config, store, log, tracer, ...(sharing && { sharing }), ...system })
    const { url, registry, unhandled } = control
    return { addresses: { api: url }, registry, unhandled, close: () => control.close() }
  })
}

async function startNodeService(config: NodeConfig, log: Logger, worker?: ThisWorker): Promise<Service> {
  const { startDataplane } = await import('../../dataplane/main.ts')
  const sharing = worker?.sharing(config)
  return served(config, { name: 'roomful-dataplane', instanceId: config.nodeId, log }, (store, tracer) =>
    startDataplane({ config, store, log, tracer, ...(sharing && { sharing }) }),
  )
}

async function startDevService(
  config: Config<'dev'>,
  log: Logger,
  { beside, lan }: DevOptions,
  terminal: TerminalLog | undefined,
): Promise<Service> {
  const [{ startDev }, { lanHosts }] = await Promise.all([import('./dev.ts'), import('./lan.ts')])
  const tell = (text: string): void => (terminal ? terminal.begin(text) : void process.stderr.write(text))
  const service = await startDev({ config, log, beside, lan: lan ? lanHosts() : undefined, tell })
  return { ...service, announced: terminal !== undefined }
}

const PROGRESS_EVERY_MS = 5000

/** Seals every private key again, and logs the progress. Rejects if the store does not answer, or if none of the secrets opens a key. */
async function rekey(config: Config<'rekey'>, log: Logger): Promise<void> {
  const [{ Keyring }, { resealAll }] = await Promise.all([
    import('../../control/keyring.ts'),
    import('../../control/keys.ts'),
  ])
  const store = await openStore({ ...config, log, ...system })
  try {
    const { records, bus } = store
    const keyring = new Keyring(config.keyringSecret, systemRandom)
    await keyring.check(records)
    let loggedAt = systemClock.monotonic()
    const done = await resealAll({ records, bus, keyring, ...system }, (progress) => {
      if (systemClock.monotonic() - loggedAt < PROGRESS_EVERY_MS) return
      loggedAt = systemClock.monotonic()
      log.info(progress, 'some private keys are sealed again')
    })
    log.info(done, 'all private keys are sealed under the first KEYRING_SECRET')
  } finally {
    await store.close()
  }
}

const request = parseArguments(process.argv.slice(2))
switch (request.kind) {
  case 'help':
    process.stdout.write(helpText(request))
    break
  case 'version':
    process.stdout.write(`${packageVersion()}\n`)
    break
  case 'schema':
    try {
      process.stdout.write(postgresSchema(request.table))
    } catch (error) {
      complain(`roomful: ${(error as Error).message}\n`)
    }
    break
  case 'admin':
    process.exitCode = await (await import('./admin.ts')).runAdmin(request.words, process.env, process)
    break
  case 'cluster':
    await (await import('../local/cluster.ts')).runCluster(request.words)
    break
  case 'types':
    try {
      process.stdout.write(await (await import('../types/command.ts')).typesCommand(request.words))
    } catch (error) {
      complain(`roomful types: ${(error as Error).message}\nSee roomful types --help.\n`)
    }
    break
  case 'mistake':
    complain(`roomful: ${request.message}\nSee roomful --help.\n`)
    break
  case 'run': {
    const { command, workers, beside, lan } = request
    // Libraries use faster code with this value. With `dev`, a developer needs their warnings.
    if (command !== 'dev') process.env.NODE_ENV ??= 'production'
    endWithNpm(process, systemClock)
    runCommand(
      command,
      workers === undefined ? process.env : { ...process.env, WORKERS: workers, WORKERS_FILE: undefined },
      { beside, lan },
    )
  }
}
