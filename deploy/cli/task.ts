import type { Logger } from '../../shared/log.ts'
import { messageOf, reasonOf } from './failure.ts'
import type { Host } from './service.ts'

/** Runs something that comes to an end by itself, and exits with 0, or with 1 when it fails; the log says why. */
export function finish(name: string, work: () => Promise<void>, log: Logger, host: Pick<Host, 'exit'>): void {
  work().then(
    () => host.exit(0),
    (error: unknown) => {
      const expected = reasonOf(error)
      if (expected === undefined) log.fatal({ err: error }, `${name} failed: ${messageOf(error)}`)
      else log.fatal(`${name} failed: ${expected}`)
      host.exit(1)
    },
  )
}
