import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { findProgram } from '../../deploy/local/machine.ts'

/**
 * The path of a program the tests run: from PATH, else out of Debian's `debian_package`, which is installed where that asks no one (as root, on
 * Debian or its kin). Throws where there is neither, saying what to install. What apt-get prints goes to stderr.
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

/** Whether this is Debian or one of its kin, and we may install packages. */
export function mayInstall(): boolean {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return false
  try {
    return /^ID(_LIKE)?=.*\b(debian|ubuntu)\b/m.test(readFileSync('/etc/os-release', 'utf8'))
  } catch {
    return false
  }
}

/** Installs packages of the distribution, waiting for other installations. Throws when that fails. */
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
