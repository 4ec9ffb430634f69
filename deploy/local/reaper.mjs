import { createInterface } from 'node:readline'

/**
 * Reads `+pid` and `-pid` from standard input. At its end, it kills every process that was added and not removed. See `Reaper`. It is plain
 * JavaScript, which starts faster than with the loader of the other processes.
 */

const watched = new Set()
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => undefined)

for await (const line of createInterface({ input: process.stdin })) {
  const pid = Number(line.slice(1))
  if (line.startsWith('+')) watched.add(pid)
  else watched.delete(pid)
}
for (const pid of watched) {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has already ended.
  }
}
