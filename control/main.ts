import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Logger } from 'pino'
import { Registry } from 'prom-client'
import type { Clock } from '../shared/clock.ts'
import { type Defaults, defaultConfig, type StoreConfig } from '../shared/config.ts'
import { createHttpServer } from '../shared/http-server.ts'
import { type LogConfig, type LogLevel, setLogLevel } from '../shared/log.ts'
import { processMetrics } from '../shared/metrics.ts'
import { isLoopback } from '../shared/origins.ts'
import type { Random } from '../shared/random.ts'
import type { Rate } from '../shared/rate-limit.ts'
import { ClockOffset, StoreDataWatch, storeMetrics, storeServerMetrics } from '../shared/store/health.ts'
import { type Store, StoreRefused, StoreUnavailable } from '../shared/store/port.ts'
import { noTracer, type Tracer } from '../shared/tracing/tracer.ts'
import { UnhandledErrors } from '../shared/unhandled.ts'
import { createControlApp } from './app.ts'
import { Keyring } from './keyring.ts'
import { controlMetrics } from './metrics.ts'
import { Nodes } from './nodes.ts'

/** Configuration of a control process, where it differs from the defaults. */
export interface ControlOptions
  extends Partial<Omit<Defaults<'control'>, 'workers' | keyof StoreConfig | keyof LogConfig>> {
  /** Rate of tokens for one caller. Default: 2,000 per second, with bursts of 5,000. */
  readonly tokenRate?: Rate
}

/** Options of a control process that is one of several behind one port. */
interface ControlWorker {
  /** Number of the process, which is the label `worker` of its metrics. */
  readonly worker: string
  /** Returns the metrics of all of them in Prometheus' text format. Each answers `/metrics` for all. */
  readonly metrics: () => Promise<string>
  /** Sets the log level of all of them and of their parent. */
  readonly setLogLevel: (level: LogLevel) => void
}

/** Dependencies of a control process. It does not close the store. */
interface ControlParts {
  readonly config: ControlOptions
  readonly store: Store
  readonly log: Logger
  readonly clock: Clock
  readonly random: Random
  /** Default: no traces. */
  readonly tracer?: Tracer
  /** Default: no other process listens on its port. */
  readonly sharing?: ControlWorker
}

/** A running control process. */
export interface RunningControl {
  /** Address of the API, such as `http://127.0.0.1:3000`. */
  readonly url: string
  readonly registry: Registry
  /** Handles uncaught errors and rejections. */
  readonly unhandled: UnhandledErrors
  /** Accepts no more requests, answers the pending ones for at most `SHUTDOWN_MS`, and resolves. Further calls return the same promise. */
  close(): Promise<void>
}

/** Error of an unsafe configuration. The message says how to correct it. */
export class UnsafeControl extends Error {
  override readonly name = 'UnsafeControl'
}

const DEFAULT_TOKEN_RATE: Rate = { perSecond: 2000, burst: 5000 }
const SHUTDOWN_MS = 10_000
const REQUEST_TIMEOUT_MS = 30_000
/** Interval between checks for requests that take too long. */
const TIMEOUT_CHECK_MS = 5000
/** Idle timeout of a connection. It is longer than that of load balancers: they close idle connections, so that no request meets a closed one. */
const KEEP_ALIVE_MS = 75_000

/**
 * Starts a control process. Resolves when it answers. Rejects with `UnsafeControl` for an unsafe configuration, with `WrongKeyring` if the
 * store's keys are sealed under another secret, and with the system's error if the address is in use.
 */
export async function startControl({
  config: options,
  store,
  log,
  clock,
  random,
  tracer = noTracer,
  sharing,
}: ControlParts): Promise<RunningControl> {
  const config = { ...defaultConfig('control'), ...options }
  requireSafe(config)
  const openToAll = config.controlApiTokens === 'none'
  const operatorTokens = config.controlApiTokens === 'none' ? [] : (config.controlApiTokens ?? [])
  if (config.keyringSecret === undefined)
    log.info('KEYRING_SECRET is not set: private keys are stored in plain. For development only.')
  if (operatorTokens.length === 0)
    log[openToAll ? 'warn' : 'info'](
      { host: config.controlHost },
      `The control API has no operator token: it is open to ${openToAll ? 'everyone who reaches it' : 'everyone on this machine'}.`,
    )
  const keyring = new Keyring(config.keyringSecret, random)
  await checkKeyring(keyring, store, log)

  const registry = new Registry()
  if (sharing) registry.setDefaultLabels({ worker: sharing.worker })
  const { unhandled } = processMetrics(registry, log)
  const clockOffset = new ClockOffset({ store, clock, log })
  const dataWatch = new StoreDataWatch({ store, key: '{control}:data', clock, random, log })
  storeMetrics(registry, store, { clockOffset, dataWatch })
  clockOffset.start()
  storeServerMetrics(registry, store.vitals, clock)
  let draining = false
  const app = createControlApp({
    store,
    keyring,
    clock,
    random,
    log,
    exposition: sharing ? { metrics: sharing.metrics, contentType: registry.contentType } : registry,
    metrics: controlMetrics(registry),
    tracer,
    operatorTokens,
    openTo: openToAll ? 'everyone' : 'this machine',
    nodes: new Nodes({ records: store.records, clock, random, log, internalToken: config.internalToken }),
    internalToken: config.internalToken,
    notifySecrets: config.notifySecret ?? [],
    requireKeyId: config.requireKeyId,
    tokenRate: config.tokenRate ?? DEFAULT_TOKEN_RATE,
    setLogLevel: sharing?.setLogLevel ?? ((level) => setLogLevel(log, level)),
    draining: () => draining,
    clockWrong: () => clockOffset.wrong,
    dataLost: () => dataWatch.checkLost(),
  })
  const server = createHttpServer(app.fetch, random, {
    requestTimeout: REQUEST_TIMEOUT_MS,
    connectionsCheckingInterval: TIMEOUT_CHECK_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
  })
  await listen(server, config)
  void dataWatch.start()

  let closed: Promise<void> | undefined
  return {
    url: urlOf(server),
    registry,
    unhandled: new UnhandledErrors({
      clock,
      log,
      count: (kind) => unhandled.inc({ kind }),
      roomCode: () => false,
    }),
    close: () => {
      draining = true
      clockOffset.stop()
      dataWatch.stop()
      closed ??= closeServer(server, clock)
      return closed
    },
  }
}

function requireSafe(config: Defaults<'control'>): void {
  const { controlHost: host, controlApiTokens = [], keyringSecret } = config
  if (isLoopback(host)) return
  if (controlApiTokens.length === 0)
    throw new UnsafeControl(
      `The control API has no operator token and would be open on ${host}. Set CONTROL_API_TOKENS, bind to a loopback address, or set CONTROL_API_TOKENS=none to be open on purpose.`,
    )
  if (keyringSecret === undefined)
    throw new UnsafeControl(
      `Private keys would rest in plain and ${host} is not a loopback address. Set KEYRING_SECRET, or bind to a loopback address.`,
    )
}

/** Control also starts while the store is not reachable. Until it is, `/readyz` reports it and requests get 503. */
async function checkKeyring(keyring: Keyring, store: Store, log: Logger): Promise<void> {
  try {
    await keyring.check(store.records)
  } catch (error) {
    if (!(error instanceof StoreUnavailable) || error instanceof StoreRefused) throw error
    log.warn(
      { failure: error.failure, err: error },
      'the store failed: KEYRING_SECRET was not checked against it',
    )
  }
}

function listen(server: Server, { controlHost, controlPort }: Defaults<'control'>): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(controlPort, controlHost, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

function urlOf(server: Server): string {
  const { address, family, port } = server.address() as AddressInfo
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`
}

async function closeServer(server: Server, clock: Clock): Promise<void> {
  const cancel = clock.schedule(SHUTDOWN_MS, () => server.closeAllConnections())
  await new Promise<void>((resolve) => {
    server.close(() => resolve())
    server.closeIdleConnections()
  })
  cancel()
}
