import { startControl } from '../../control/main.ts'
import { startDataplane } from '../../dataplane/main.ts'
import { startBackend } from '../../examples/backend/backend.ts'
import { ControlClient, OwnProject } from '../../examples/backend/control-client.ts'
import { systemClock } from '../../shared/clock.ts'
import type { Config } from '../../shared/config.ts'
import { newId, randomToken } from '../../shared/ids.ts'
import type { Logger } from '../../shared/log.ts'
import { systemRandom } from '../../shared/random.ts'
import { openStore } from '../../shared/store/open.ts'
import { openTracing, tracingConfig } from '../../shared/tracing/open.ts'
import { devTokens } from './dev-token.ts'
import type { Service } from './service.ts'

export interface DevParts {
  readonly config: Config<'dev'>
  readonly log: Logger
  /** Where people are told what is where; the log keeps its own line. */
  readonly tell: (text: string) => void
}

const DEV_TOKEN_SECONDS = 3600

/**
 * Both planes and the example games with their backend, in one process. They talk as they do when apart: over HTTP and the store. An
 * internal token is made up when none is configured, and told to the person at the terminal only.
 */
export async function startDev({ config, log, tell }: DevParts): Promise<Service> {
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
    // No other node could take the clients of the only node: waiting for them to move would only make people wait.
    // In a store that others use as well, the name of a node is its own.
    const nodeId = config.nodeId ?? (store.kind === 'memory' ? 'node-1' : newId('node', systemRandom))
    const dataplane = {
      ...config,
      nodeId,
      internalToken,
      controlUrl: control.url,
      drainSeconds: 0,
    }
    const tracer = await trace('roomful-dataplane', nodeId)
    const [controlToken] = config.controlApiTokens ?? []
    const project = new OwnProject(new ControlClient(control.url, controlToken))
    const answer = devTokens((sub) => project.issueToken({ sub, ttl_seconds: DEV_TOKEN_SECONDS }), log)
    const node = await startDataplane({ config: dataplane, store, log, tracer, answer, development: true })
    running.push(() => node.close())
    const backend = await startBackend({
      host: config.examplesHost,
      port: config.examplesPort,
      control_url: control.url,
      ...(controlToken !== undefined && { control_token: controlToken }),
      ws_url: node.addresses.websocket,
      nodes: { addresses: [{ admin_url: node.addresses.admin }], internal_token: internalToken },
      log,
    })
    running.push(() => backend.close())
    const addresses = { games: backend.url, api: control.url, ...node.addresses }
    tell(banner(addresses, store.kind, config.internalToken === undefined ? internalToken : undefined))
    return { addresses, close, ended: node.ended }
  } catch (error) {
    await close()
    throw error
  }
}

/** What is where, for the person who has just typed `npm start`. */
function banner(
  addresses: Readonly<Record<'games' | 'api' | 'websocket' | 'admin', string>>,
  store: 'memory' | 'redis',
  madeUpToken: string | undefined,
): string {
  const lines = [
    ['play', addresses.games, 'open it in two tabs'],
    ['control API', addresses.api, `${addresses.api}/docs`],
    ['websocket', addresses.websocket, ''],
    ['admin', `${addresses.admin}/admin`, `metrics at ${addresses.admin}/metrics`],
    [
      'store',
      store,
      store === 'memory' ? 'this process only, gone when it ends; REDIS_URL=redis://… keeps it' : '',
    ],
    ...(madeUpToken === undefined
      ? []
      : [['internal token', madeUpToken, 'made up for this run; INTERNAL_TOKEN sets it']]),
  ]
  return `\n  roomful\n\n${lines.map(([what, where, note]) => `  ${what!.padEnd(15)}${where!.padEnd(34)}${note}`.trimEnd()).join('\n')}\n\n`
}
