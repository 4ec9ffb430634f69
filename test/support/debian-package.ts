import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { findProgram } from '../../deploy/local/machine.ts'

/** Returns the path of a program in PATH. If PATH has none, installs `debianPackage` (`findOrInstall`). */
export const programOr = (program: string, debianPackage = program): string =>
  findOrInstall(program, [debianPackage], () => findProgram([program], process.env.PATH))

/**
 * Returns the result of `find`. If there is none, installs Debian packages with apt-get, on Debian or Ubuntu as root, and calls `find` again.
 * Throws an error with `what` and the packages if that is not possible.
 */
export function findOrInstall(
  what: string,
  packages: readonly string[],
  find: () => string | undefined,
): string {
  const found = find()
  if (found !== undefined) return found
  if (!mayInstall()) throw new Error(`These tests need ${what}: apt install ${packages.join(' ')}`)
  installPackages(packages)
  const installed = find()
  if (installed === undefined) throw new Error(`apt-get installed ${packages.join(' ')}, but not ${what}`)
  return installed
}

/** Returns the result of `find`. If it throws, writes the error to stderr and returns undefined: then the caller skips `suite`. */
export function foundFor(suite: string, find: () => string): string | undefined {
  try {
    return find()
  } catch (error) {
    process.stderr.write(`skipped: ${suite}: ${(error as Error).message}\n`)
    return undefined
  }
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

/** Installs packages with apt-get. Waits up to 300 s for other installations. Output goes to stderr. Throws if apt-get fails. */
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

/** Commands of Python. Debian's Python is the second choice: only it sees the packages of the distribution. */
const PYTHONS = ['python3', '/usr/bin/python3']

/** Returns the command of a Python that has the packages of clients/python. Installs them if they are missing (`findOrInstall`). */
export const pythonPath = (): string =>
  findOrInstall('Python with websockets and msgpack', ['python3-websockets', 'python3-msgpack'], () =>
    PYTHONS.find((name) => spawnSync(name, ['-c', 'import websockets, msgpack']).status === 0),
  )

/** Returns the command of a LuaJIT or Lua 5.1 that has luasocket. Installs them if they are missing (`findOrInstall`). */
export const luaPath = (): string =>
  findOrInstall('LuaJIT with luasocket', ['luajit', 'lua-socket'], () =>
    ['luajit', 'lua5.1'].find((name) => spawnSync(name, ['-e', 'require("socket")']).status === 0),
  )
