import { systemClock } from '../../shared/clock.ts'
import {
  type Command,
  type Config,
  type ConfigProblems,
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
import { openTracing, tracingConfig } from '../../shared/tracing/open.ts'
import { type Host, live, type Service } from './service.ts'
import { finish } from './task.ts'

const parts = { clock: systemClock, random: systemRandom }

/** Starts a command. False when the environment does not allow it; then everything that is wrong was written to `complain`. */
export function runCommand(
  command: Command,
  env: Environment,
  host: Host,
  complain: (text: string) => void,
): boolean {
  switch (command) {
    case 'control':
      return run(command, parseConfig('control', env), host, complain, startControlService)
    case 'dataplane':
      return run(command, withNodeId(parseConfig('dataplane', env)), host, complain, startNodeService)
    case 'dev':
      return run(command, parseConfig('dev', env), host, complain, startDevService)
    case 'rekey':
      return runRekey(parseConfig('rekey', env), host, complain)
  }
}

function run<C extends LogConfig & { readonly nodeId?: string | undefined }>(
  command: Command,
  parsed: Parsed<C>,
  host: Host,
  complain: (text: string) => void,
  start: (config: C, log: Logger) => Promise<Service>,
): boolean {
  if (!parsed.ok) return refuse(command, parsed, complain)
  const { config, warnings } = parsed
  const log = createLog(config, config.nodeId === undefined ? {} : { node_id: config.nodeId })
  for (const warning of warnings) log.warn(warning)
  live(command, () => start(config, log), log, host)
  return true
}

function runRekey(parsed: Parsed<Config<'rekey'>>, host: Host, complain: (text: string) => void): boolean {
  if (!parsed.ok) return refuse('rekey', parsed, complain)
  const { config, warnings } = parsed
  const log = createLog(config)
  for (const warning of warnings) log.warn(warning)
  const work = async (): Promise<void> => {
    const { rekey } = await import('./rekey.ts')
    await rekey(config, log)
  }
  finish('rekey', work, log, host)
  return true
}

/** Says everything that is wrong with the environment; false, for the caller. */
function refuse(command: Command, wrong: ConfigProblems, complain: (text: string) => void): false {
  complain(
    `roomful ${command} cannot start: its configuration is not valid.\n${describeProblems(wrong)}\n` +
      `roomful ${command} --help lists every variable.\n`,
  )
  return false
}

/** A node that was given no name gets a random one, before its first line in the log. */
function withNodeId(parsed: Parsed<Config<'dataplane'>>): Parsed<Config<'dataplane'>> {
  if (!parsed.ok || parsed.config.nodeId !== undefined) return parsed
  return { ...parsed, config: { ...parsed.config, nodeId: newId('node', systemRandom) } }
}

async function startControlService(config: Config<'control'>, log: Logger): Promise<Service> {
  const { startControl } = await import('../../control/main.ts')
  const instanceId = randomToken(systemRandom, 16)
  const tracing = await openTracing({
    config: tracingConfig(config, 'roomful-control'),
    instanceId,
    log,
    ...parts,
  })
  const store = await openStore({ ...config, log, ...parts })
  try {
    const control = await startControl({ config, store, log, tracer: tracing.tracer, ...parts })
    const close = () =>
      control
        .close()
        .finally(() => store.close())
        .finally(() => tracing.close())
    return { addresses: { api: control.url }, close }
  } catch (error) {
    await store.close()
    throw error
  }
}

async function startNodeService(config: Config<'dataplane'>, log: Logger): Promise<Service> {
  const { startDataplane } = await import('../../dataplane/main.ts')
  const instanceId = config.nodeId ?? newId('node', systemRandom)
  const tracing = await openTracing({
    config: tracingConfig(config, 'roomful-dataplane'),
    instanceId,
    log,
    ...parts,
  })
  const store = await openStore({ ...config, log, ...parts })
  try {
    const node = await startDataplane({
      config: { ...config, nodeId: instanceId },
      store,
      log,
      tracer: tracing.tracer,
    })
    const close = () =>
      node
        .close()
        .finally(() => store.close())
        .finally(() => tracing.close())
    return { ...node, close }
  } catch (error) {
    await store.close()
    throw error
  }
}

async function startDevService(config: Config<'dev'>, log: Logger): Promise<Service> {
  const { startDev } = await import('./dev.ts')
  return startDev({ config, log, tell: (text) => process.stderr.write(text) })
}
