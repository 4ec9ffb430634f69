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
import { createLog, type Logger } from '../../shared/log.ts'
import { systemRandom } from '../../shared/random.ts'
import { openStore } from '../../shared/store/open.ts'
import type { Store } from '../../shared/store/port.ts'
import { openTracing, tracingConfig } from '../../shared/tracing/open.ts'
import type { Tracer } from '../../shared/tracing/tracer.ts'
import { finish, type Host, live, type Service } from './service.ts'

const parts = { clock: systemClock, random: systemRandom }

/** Starts a command. False when the environment does not allow it; then everything that is wrong was written to `complain`. */
export function runCommand(
  command: Command,
  env: Environment,
  host: Host,
  complain: (text: string) => void,
): boolean {
  const serve =
    <C>(start: (config: C, log: Logger) => Promise<Service>) =>
    (config: C, log: Logger) =>
      live(command, () => start(config, log), log, host)
  switch (command) {
    case 'control':
      return run(command, parseConfig('control', env), complain, serve(startControlService))
    case 'dataplane':
      return run(command, withNodeId(parseConfig('dataplane', env)), complain, serve(startNodeService))
    case 'dev':
      return run(command, parseConfig('dev', env), complain, serve(startDevService))
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
): boolean {
  if (!parsed.ok) {
    complain(
      `roomful ${command} cannot start: its configuration is not valid.\n${describeProblems(parsed)}\n` +
        `roomful ${command} --help lists every variable.\n`,
    )
    return false
  }
  const { config, warnings } = parsed
  const log = createLog(config, config.nodeId === undefined ? {} : { node_id: config.nodeId })
  for (const warning of warnings) log.warn(warning)
  start(config, log)
  return true
}

/** A node that was given no name gets a random one, before its first line in the log. */
function withNodeId(parsed: Parsed<Config<'dataplane'>>): Parsed<Config<'dataplane'>> {
  if (!parsed.ok || parsed.config.nodeId !== undefined) return parsed
  return { ...parsed, config: { ...parsed.config, nodeId: newId('node', systemRandom) } }
}

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
    const close = () =>
      service
        .close()
        .finally(() => store.close())
        .finally(() => tracing.close())
    return { ...service, close }
  } catch (error) {
    await store.close()
    throw error
  }
}

async function startControlService(config: Config<'control'>, log: Logger): Promise<Service> {
  const { startControl } = await import('../../control/main.ts')
  const instanceId = randomToken(systemRandom, 16)
  return served(config, { name: 'roomful-control', instanceId, log }, async (store, tracer) => {
    const control = await startControl({ config, store, log, tracer, ...parts })
    return { addresses: { api: control.url }, close: () => control.close() }
  })
}

async function startNodeService(config: Config<'dataplane'>, log: Logger): Promise<Service> {
  const { startDataplane } = await import('../../dataplane/main.ts')
  const nodeId = config.nodeId ?? newId('node', systemRandom)
  return served(config, { name: 'roomful-dataplane', instanceId: nodeId, log }, (store, tracer) =>
    startDataplane({ config: { ...config, nodeId }, store, log, tracer }),
  )
}

async function startDevService(config: Config<'dev'>, log: Logger): Promise<Service> {
  const { startDev } = await import('./dev.ts')
  return startDev({ config, log, tell: (text) => process.stderr.write(text) })
}
