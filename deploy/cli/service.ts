import type { Registry } from 'prom-client'
import { type Clock, systemClock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { UnhandledErrors } from '../../shared/unhandled.ts'
import { currentBuild } from '../../shared/version.ts'
import { exitCodeOf, messageOf, reasonOf } from './failure.ts'

/** Something that serves until it is closed. */
export interface Service {
  /** Where it can be reached, by what is there: `{ websocket: 'ws://127.0.0.1:4000' }`. */
  readonly addresses: Readonly<Record<string, string>>
  /** The person at the terminal has been told where it is: the log need not say so. */
  readonly announced?: boolean
  /** What it counts. */
  readonly registry?: Pick<Registry, 'metrics'>
  /** Deals with errors that nothing has handled. Absent: each ends the process. */
  readonly unhandled?: UnhandledErrors
  /** Hands over its work and closes everything; `drainMs`: within how many milliseconds, where that is not what is configured. */
  close(drainMs?: number): Promise<void>
  /** Resolves when the service has ended by itself, such as a node drained over HTTP; rejects when it has to end at once. */
  readonly ended?: Promise<void>
  /** What SIGHUP asks for. Absent: it ends the service as SIGTERM does. */
  readonly reload?: () => void
}

/** The part of `process` that a service's life depends on. */
export interface Host {
  on(
    event: NodeJS.Signals | 'unhandledRejection' | 'uncaughtException',
    listener: (what: unknown) => void,
  ): unknown
  exit(code: number): void
}

/** After an error in its own code a service has so long to hand over its work, and then a little longer to end. */
const FAILED_DRAIN_MS = 2000
const FAILED_END_MS = 5000

/**
 * Runs a service to its end: says when it is ready, closes it at the first SIGTERM or SIGINT and exits 0 after that, and exits 1 at the
 * second. At an exception in its own code it drains within seconds and exits 1. `exitCodeOf` has the codes of errors that are expected. A
 * service that is told to stop before it could start exits 0.
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
    const end = () => host.exit(1)
    running.close(FAILED_DRAIN_MS).then(end, end)
  }
  host.on('unhandledRejection', (reason) => {
    const text = 'a promise was rejected and not handled'
    if (running?.unhandled) running.unhandled.rejection(reason)
    else if (running) fail(reason, text)
    // A room file leaves one behind while it is loaded. What the start itself needs rejects `starting`.
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
    log.info({ signal }, `${name} is stopping`)
    const service = await starting.catch((error: unknown) => {
      log.info({ reason: messageOf(error) }, `${name} has stopped before it could start`)
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
    log.info(`${name} has stopped`)
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
      // No one waits for it any more.
      if (!stopping) giveUp(error, `${name} cannot start`)
    },
  )
}

/** Runs something that comes to an end by itself, and exits with 0, or with 1 when it fails; the log says why. */
export function finish(name: string, work: () => Promise<void>, log: Logger, host: Pick<Host, 'exit'>): void {
  work().then(
    () => host.exit(0),
    (error: unknown) => {
      sayWhy(error, `${name} failed`, log)
      host.exit(1)
    },
  )
}

/** An error that is expected is in the log without its stack. */
function sayWhy(error: unknown, what: string, log: Logger): void {
  const expected = reasonOf(error)
  if (expected === undefined) log.fatal({ err: error }, `${what}: ${messageOf(error)}`)
  else log.fatal(`${what}: ${expected}`)
}

/** One line at every log level but `silent`, since others wait for it. */
function sayReady(name: string, { addresses, announced }: Service, log: Logger): void {
  if (log.level === 'silent' || announced) return
  const places = Object.entries(addresses).map(([what, where]) => `${what} ${where}`)
  log
    .child({}, { level: 'info' })
    .info({ addresses, ...currentBuild() }, `${name} ready: ${places.join(', ')}`)
}
