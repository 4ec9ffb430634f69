import { createInterface } from 'node:readline'

/*
 * Reads `+pid` and `-pid` from standard input; at its end, kills every process that was added and not taken away. See `Reaper`. Plain
 * JavaScript: it starts faster than with the loader that the other processes may need.
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
    // It has ended by itself.
  }
}
