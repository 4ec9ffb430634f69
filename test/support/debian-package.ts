import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { findProgram } from '../../deploy/local/machine.ts'

/**
 * Returns the path of a program in PATH. If PATH has none, installs `debianPackage` with apt-get, on Debian or Ubuntu as root. Otherwise throws
 * an error that names the package. Output of apt-get goes to stderr.
 */
export function programOr(program: string, debianPackage = program): string {
  const find = (): string | undefined => findProgram([program], process.env.PATH)
  const there = find()
  if (there !== undefined) return there
  if (!mayInstall())
    throw new Error(
      `These tests need ${program}: install it (apt install ${debianPackage}), so that it is in PATH.`,
    )
  installPackages([debianPackage])
  const installed = find()
  if (installed === undefined) throw new Error(`apt-get installed ${debianPackage}, but it has no ${program}`)
  return installed
}

/** True on Debian or a distribution like it, as root. */
export function mayInstall(): boolean {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return false
  try {
    return /^ID(_LIKE)?=.*\b(debian|ubuntu)\b/m.test(readFileSync('/etc/os-release', 'utf8'))
  } catch {
    return false
  }
}

/** Installs packages with apt-get, and waits up to 300 s for other installations. Throws if apt-get fails. */
export function installPackages(names: readonly string[]): void {
  process.stderr.write(`installing ${names.join(' ')} with apt-get for the tests\n`)
  const wait = ['-o', 'DPkg::Lock::Timeout=300']
  for (const words of [['update'], ['install', '-y', '--no-install-recommends', ...names]]) {
    const run = spawnSync('apt-get', [...wait, ...words], {
      stdio: ['ignore', process.stderr.fd, process.stderr.fd],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    })
    if (run.status !== 0) throw new Error(`apt-get ${words.join(' ')} failed (status ${run.status})`)
  }
}
