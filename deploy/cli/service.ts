import type { Registry } from 'prom-client'
import { type Clock, systemClock } from '../../shared/clock.ts'
import { variables } from '../../shared/config/variables.ts'
import type { Logger } from '../../shared/log.ts'
import type { UnhandledErrors } from '../../shared/unhandled.ts'
import { currentBuild } from '../../shared/version.ts'

/** A running service. */
export interface Service {
  /** Its addresses, by kind: `{ websocket: 'ws://127.0.0.1:4000' }`. */
  readonly addresses: Readonly<Record<string, string>>
  /** True if the terminal already shows the addresses, so that the log does not. */
  readonly announced?: boolean
  /** Its metrics. */
  readonly registry?: Pick<Registry, 'metrics'>
  /** Handles uncaught errors. Absent: each ends the process. */
  readonly unhandled?: UnhandledErrors
  /** Called after an exception in its own code, before it is closed. */
  readonly failing?: () => void
  /** Hands off its work and closes everything. `drainMs`: time limit in milliseconds, instead of the configured one. */
  close(drainMs?: number): Promise<void>
  /** Resolves when the service has ended without a signal, such as a node that was drained over HTTP. Rejects when it has failed. */
  readonly ended?: Promise<void>
  /** Called at SIGHUP. Absent: SIGHUP ends the service as SIGTERM does. */
  readonly reload?: () => void
}

/** The part of `process` that the service uses. */
export interface Host {
  on(
    event: NodeJS.Signals | 'unhandledRejection' | 'uncaughtException',
    listener: (what: unknown) => void,
  ): unknown
  exit(code: number): void
}

/** Time for a drain after an error in the service's code, and then for its end. */
const FAILED_DRAIN_MS = 2000
const FAILED_END_MS = 5000

/**
 * Runs a service until its end: logs when it is ready, closes it after the first SIGTERM or SIGINT and exits with 0, or exits with 1 after
 * the second. After an exception in its own code it drains within seconds and exits with 1. `exitCodeOf` has the codes of expected errors.
 * A service that gets a signal before it has started exits with 0.
 */
export function live(
  name: string,
  start: () => Promise<Service>,
  log: Logger,
  host: Host,
  clock: Pick<Clock, 'schedule'> = systemClock,
): void {
  const fail = (err: unknown, message: string): void => {
    log.fatal({ err }, message)
    host.exit(1)
  }
  let running: Service | undefined
  let failed = false
  const failSoon = (err: unknown, message: string): void => {
    if (!running || failed) {
      fail(err, message)
      return
    }
    failed = true
    stopping = true
    log.fatal({ err }, `${message}: ${name} hands over its work and ends`)
    clock.schedule(FAILED_END_MS, () => host.exit(1))
    running.failing?.()
    const end = () => host.exit(1)
    running.close(FAILED_DRAIN_MS).then(end, end)
  }
  host.on('unhandledRejection', (reason) => {
    const text = 'a promise was rejected and not handled'
    if (running?.unhandled) running.unhandled.rejection(reason)
    else if (running) fail(reason, text)
    // A room file may cause one while it is loaded. An error of the start itself rejects `starting`.
    else log.error({ err: reason }, text)
  })
  host.on('uncaughtException', (error) => {
    if (!running?.unhandled?.exception(error)) failSoon(error, 'an error was thrown and not caught')
  })

  const giveUp = (error: unknown, what: string): void => {
    sayWhy(error, what, log)
    host.exit(exitCodeOf(error))
  }

  const starting = start()
  let stopping = false
  const stop = async (signal: string): Promise<void> => {
    if (stopping) {
      log.warn({ signal }, 'a second signal: ending without waiting for a clean stop')
      host.exit(1)
      return
    }
    stopping = true
    log.info({ signal }, 'the process is stopping')
    const service = await starting.catch((error: unknown) => {
      log.info({ reason: messageOf(error) }, 'the process has stopped before it could start')
    })
    if (!service) {
      host.exit(0)
      return
    }
    try {
      await service.close()
    } catch (error) {
      fail(error, `${name} did not stop as it should`)
      return
    }
    log.info('the process has stopped')
    host.exit(0)
  }
  host.on('SIGTERM', () => void stop('SIGTERM'))
  host.on('SIGINT', () => void stop('SIGINT'))
  host.on('SIGHUP', () => {
    void starting.then(
      ({ reload }) => (reload ? reload() : void stop('SIGHUP')),
      () => undefined,
    )
  })

  starting.then(
    (service) => {
      running = service
      sayReady(name, service, log)
      service.ended?.then(
        () => void (stopping || stop('ended')),
        (error) => giveUp(error, `${name} failed`),
      )
    },
    (error: unknown) => {
      // No caller awaits it any more.
      if (!stopping) giveUp(error, `${name} cannot start`)
    },
  )
}

/** Runs a task, and exits with 0, or with 1 and a log line if it fails. */
export function finish(name: string, work: () => Promise<void>, log: Logger, host: Pick<Host, 'exit'>): void {
  work().then(
    () => host.exit(0),
    (error: unknown) => {
      sayWhy(error, `${name} failed`, log)
      host.exit(1)
    },
  )
}

/** Logs an expected error without its stack. */
function sayWhy(error: unknown, what: string, log: Logger): void {
  const expected = reasonOf(error)
  if (expected === undefined) log.fatal({ err: error }, `${what}: ${messageOf(error)}`)
  else log.fatal(`${what}: ${expected}`)
}

/** Writes one line at every log level except `silent`, because other programs wait for it. */
function sayReady(name: string, { addresses, announced }: Service, log: Logger): void {
  if (log.level === 'silent' || announced) return
  const places = Object.entries(addresses).map(([what, where]) => `${what} ${where}`)
  log
    .child({}, { level: 'info' })
    .info({ addresses, ...currentBuild() }, `${name} ready: ${places.join(', ')}`)
}

/** Exit codes of errors that the operator can fix, by name. 2: configuration. 3: another process has taken over the name of the node. */
const EXPECTED: ReadonlyMap<string, number> = new Map([
  ...['WrongKeyring', 'StoreMisconfigured', 'StoreRefused', 'StoreRejected', 'StoreUnavailable'].map(
    (name) => [name, 1] as const,
  ),
  ['NodeIdInUse', 2],
  ['PackageMissing', 2],
  ['RoomsFolderUnusable', 2],
  ['NodeReplaced', 3],
  ['WorkerFailed', 1],
  ['CommandFailed', 1],
])

/** Returns the reason of an error that the operator can fix. A stack would only hide it. */
function reasonOf(error: unknown): string | undefined {
  const { name, cause, code, address, port } = error as NodeJS.ErrnoException & {
    address?: string
    port?: number
  }
  if (EXPECTED.has(name) || (name === 'RoomDefinitionError' && cause === undefined)) return messageOf(error)
  if (code === 'EADDRINUSE')
    return `another process listens on ${address}:${port}: end that process, or set ${portVariable(port)} to another port`
  if (code === 'EACCES' && port !== undefined) return `this user may not listen on port ${port}`
  if (code === 'EADDRNOTAVAIL') return `${address} is no address of this machine`
  return undefined
}

/** Returns the name of the environment variable that sets a port. */
const portVariable = (port: number | undefined): string =>
  variables().find(
    ([name, { default: usual }]) => name.endsWith('_PORT') && Number(process.env[name] ?? usual) === port,
  )?.[0] ?? 'its variable'

/** Returns the exit code for an error. A process whose workers cannot serve exits with the code of the last one. */
function exitCodeOf(error: unknown): number {
  const { name, exitCode } = error as Error & { exitCode?: number }
  return exitCode ?? EXPECTED.get(name) ?? 1
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** The part of `process` that is read. */
type Self = Pick<NodeJS.Process, 'env' | 'pid' | 'ppid' | 'kill'>

const LOOK_MS = 500

/**
 * Ends a process, as SIGTERM does, when the npm that runs it has ended. npm ends at SIGTERM without notifying its child, which would
 * continue and keep its ports. Does nothing for a process that npm did not start.
 */
export function endWithNpm(self: Self, clock: Clock): void {
  if (self.env.npm_lifecycle_event === undefined) return
  const npm = self.ppid
  const look = (): void => {
    if (self.ppid === npm) clock.schedule(LOOK_MS, look)
    else self.kill(self.pid, 'SIGTERM')
  }
  clock.schedule(LOOK_MS, look)
}
