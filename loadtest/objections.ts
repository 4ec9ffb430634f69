import { LONGEST_TOKEN_SECONDS } from './control-issuer.ts'
import type { RunOptions } from './options.ts'
import type { Prospect } from './rehearsal.ts'
import type { Timing } from './result.ts'
import { count } from './view/text.ts'

/** What a process needs besides one file for each client. */
const OTHER_FILES = 200

const OF_TIMING = /^--max-(connect|join|rtt|resume|pause)-/
const OF_SERVERS = ['--max-resyncs', '--max-cpu', '--max-event-loop-delay', '--max-rss']

/**
 * Why a run cannot come to what is asked for, a line each; empty: nothing is known against it. `open_files`: how many this process may
 * have; undefined: nobody knows.
 */
export function objections(
  options: RunOptions,
  prospect: Prospect,
  open_files: number | undefined,
): string[] {
  const { scenario, target, limits } = options
  const { clients, seconds, timings, revokes } = prospect
  const most = open_files === undefined ? Number.POSITIVE_INFINITY : open_files - OTHER_FILES
  const names = limits.map(({ threshold }) => threshold.name)
  const given = typeof target === 'number' ? undefined : target
  return [
    ...(clients > most
      ? [
          `${count(clients)} clients are too many for this process, which may open ${count(open_files!)} files (ulimit -n): ${count(Math.max(0, most))} at most. More take several machines, each with its part of them.`,
        ]
      : []),
    ...(seconds > LONGEST_TOKEN_SECONDS
      ? [
          `It would take ${hours(seconds)} h, and no token is good for more than ${hours(LONGEST_TOKEN_SECONDS)} h: make it shorter.`,
        ]
      : []),
    ...(revokes && given?.credentials
      ? [`${scenario.name} revokes a key, so it needs the control API: leave out --project and --token.`]
      : []),
    ...names
      .filter((name) => isMissing(name, timings))
      .map((name) => `${name}: ${scenario.name} does nothing that would be measured by it; leave it out.`),
    ...(given?.metrics.length === 0
      ? names
          .filter((name) => OF_SERVERS.includes(name))
          .map((name) => `${name} is about what the servers say of themselves: add --metrics URL,…`)
      : []),
  ]
}

function isMissing(name: string, timings: ReadonlySet<Timing>): boolean {
  const [, timing] = OF_TIMING.exec(name) ?? []
  return timing !== undefined && !timings.has(timing as Timing)
}

const hours = (seconds: number): string => count(seconds / 3600)
