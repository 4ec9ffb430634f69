import { systemClock } from '../../shared/clock.ts'
import {
  type Command,
  type Config,
  describeProblems,
  type Environment,
  type LogConfig,
  type Parsed,
  parseConfig,
} from '../../shared/config.ts'
import { newId, randomToken } from '../../shared/ids.ts'
import { createLog, type Logger, LogOutput } from '../../shared/log.ts'
import { systemRandom } from '../../shared/random.ts'
import { openStore } from '../../shared/store/open.ts'
import type { Store } from '../../shared/store/port.ts'
import { openTracing, type Tracer, tracingConfig } from '../../shared/tracing/tracer.ts'
import { startGroup, ThisWorker } from './group.ts'
import { finish, type Host, live, type Service } from './service.ts'
import { TerminalLog } from './terminal-log.ts'

const parts = { clock: systemClock, random: systemRandom }

/**
 * Starts a command; `beside`: what runs beside `dev`. False when the environment does not allow it; then everything that is wrong was
 * written to `complain`.
 */
export function runCommand(
  {
    command,
    beside,
  }: { readonly command: Exclude<Command, 'admin'>; readonly beside?: readonly string[] | undefined },
  env: Environment,
  host: Host,
  complain: (text: string) => void,
): boolean {
  const worker = ThisWorker.of(env)
  const serve = (start: () => Promise<Service>, log: Logger): void =>
    worker
      ? live(
          `${command} worker ${worker.number}`,
          () => start().then((it) => worker.announce(it, log)),
          log,
          worker.host,
        )
      : live(command, start, log, host)
  switch (command) {
    case 'control':
      return run(command, parseConfig('control', env), complain, (config, log) => {
        const alone = () => startControlService(config, log, worker)
        serve(config.workers === undefined ? alone : () => startGroup({ command, config }, log), log)
      })
    case 'dataplane':
      return run(command, withNodeId(parseConfig('dataplane', env)), complain, (config, log) => {
        const alone = () => startNodeService(config, log, worker)
        serve(config.workers === undefined ? alone : () => startGroup({ command, config }, log), log)
      })
    case 'dev': {
      const parsed = parseConfig('dev', env)
      const terminal = isForDeveloper(parsed) ? new TerminalLog(terminalOutput()) : undefined
      const start = (config: Config<'dev'>, log: Logger): void =>
        serve(() => startDevService({ config, log, beside, terminal }), log)
      return run(command, parsed, complain, start, terminal)
    }
    case 'rekey':
      return run(command, parseConfig('rekey', env), complain, (config, log) => {
        const work = async (): Promise<void> => (await import('./rekey.ts')).rekey(config, log)
        finish('rekey', work, log, host)
      })
  }
}

function run<C extends LogConfig & { readonly nodeId?: string | undefined }>(
  command: Command,
  parsed: Parsed<C>,
  complain: (text: string) => void,
  start: (config: C, log: Logger) => void,
  terminal?: TerminalLog,
): boolean {
  if (!parsed.ok) {
    complain(
      `roomful ${command} cannot start: its configuration is not valid.\n${describeProblems(parsed)}\n` +
        `roomful ${command} --help lists every variable.\n`,
    )
    return false
  }
  const { config, warnings } = parsed
  const fields: Record<string, string> = config.nodeId === undefined ? {} : { node_id: config.nodeId }
  const log = terminal
    ? createLog({ logLevel: 'debug', logFormat: 'json' }, fields, terminal)
    : createLog(config, fields)
  for (const warning of warnings) log.warn(warning)
  start(config, log)
  return true
}

type NodeConfig = Config<'dataplane'> & { readonly nodeId: string }

/** A node that was given no name gets a random one, before its first line in the log. */
function withNodeId(parsed: Parsed<Config<'dataplane'>>): Parsed<NodeConfig> {
  if (!parsed.ok) return parsed
  const { config } = parsed
  return { ...parsed, config: { ...config, nodeId: config.nodeId ?? newId('node', systemRandom) } }
}

/** Returns the output of the terminal. A terminal that is gone does not end the process. */
const terminalOutput = (): LogOutput =>
  new LogOutput({
    stream: process.stdout,
    errors: process.stderr,
    format: (text) => text,
    onRecovered: () => undefined,
  })

/** True if `roomful dev` shows lines for a game's developer instead of the log: on a terminal without LOG_LEVEL and LOG_FORMAT. */
const isForDeveloper = (parsed: Parsed<Config<'dev'>>): boolean =>
  parsed.ok &&
  parsed.config.logLevel === undefined &&
  parsed.config.logFormat === 'auto' &&
  process.stdout.isTTY

/** Opens the traces and the store of a process, starts what uses them, and closes them after it. */
async function served(
  config: Config<'control'> | Config<'dataplane'>,
  { name, instanceId, log }: { name: string; instanceId: string; log: Logger },
  start: (store: Store, tracer: Tracer) => Promise<Service>,
): Promise<Service> {
  const tracing = await openTracing({ config: tracingConfig(config, name), instanceId, log, ...parts })
  const store = await openStore({ ...config, log, ...parts })
  try {
    const service = await start(store, tracing.tracer)
    const close = (drainMs?: number) =>
      service
        .close(drainMs)
        .finally(() => store.close())
        .finally(() => tracing.close())
    const reload = () => log.warn('SIGHUP replaces workers, and this process has none: WORKERS says how many')
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
    const control = await startControl({ config, store, log, tracer, ...(sharing && { sharing }), ...parts })
    const { url, registry, unhandled } = control
    return { addresses: { api: url }, registry, unhandled, close: () => control.close() }
  })
}

async function startNodeService(config: NodeConfig, log: Logger, worker?: ThisWorker): Promise<Service> {
  const { closeBuiltins, startDataplane } = await import('../../dataplane/main.ts')
  const sharing = worker?.sharing(config)
  return served(
    config,
    { name: 'roomful-dataplane', instanceId: config.nodeId, log },
    async (store, tracer) => {
      const node = await startDataplane({ config, store, log, tracer, ...(sharing && { sharing }) })
      closeBuiltins()
      return node
    },
  )
}

async function startDevService({
  terminal,
  ...parts
}: {
  readonly config: Config<'dev'>
  readonly log: Logger
  readonly beside: readonly string[] | undefined
  readonly terminal: TerminalLog | undefined
}): Promise<Service> {
  const [{ startDev }, { closeBuiltins }] = await Promise.all([
    import('./dev.ts'),
    import('../../dataplane/main.ts'),
  ])
  const tell = (text: string): void => (terminal ? terminal.begin(text) : void process.stderr.write(text))
  const service = await startDev({ ...parts, tell })
  closeBuiltins()
  return { ...service, announced: process.stdout.isTTY }
}
