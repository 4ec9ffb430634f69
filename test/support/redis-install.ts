import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'

/** Whether this is Debian or one of its kin, and we may install packages. */
export function mayInstallRedis(): boolean {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return false
  try {
    return /^ID(_LIKE)?=.*\b(debian|ubuntu)\b/m.test(readFileSync('/etc/os-release', 'utf8'))
  } catch {
    return false
  }
}

/** Installs the distribution's redis-server; what apt-get prints goes to stderr. Throws when that fails. */
export function installRedis(): void {
  process.stderr.write('no Redis for the tests: installing the package redis-server with apt-get\n')
  for (const args of [['update'], ['install', '-y', '--no-install-recommends', 'redis-server']]) {
    const run = spawnSync('apt-get', args, {
      stdio: ['ignore', process.stderr.fd, process.stderr.fd],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    })
    if (run.status !== 0) throw new Error(`apt-get ${args.join(' ')} failed (status ${run.status})`)
  }
}
