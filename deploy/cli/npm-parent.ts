import type { Clock } from '../../shared/clock.ts'

/** The part of `process` that is looked at. */
type Self = Pick<NodeJS.Process, 'env' | 'pid' | 'ppid' | 'kill'>

const LOOK_MS = 500

/**
 * Ends a process with the npm that runs it, as SIGTERM does. npm itself ends at SIGTERM without a word to its child, which would go on
 * and keep its ports. Does nothing for a process that npm did not start.
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
