import { spawnSync } from 'node:child_process'
import { pathToFileURL } from 'node:url'
import { installPackages, mayInstall } from './debian-package.ts'

/** Debian's Python is the second choice: only it sees the packages of the distribution. */
const NAMES = ['python3', '/usr/bin/python3']
const PACKAGES = ['python3-websockets', 'python3-msgpack']

/** Returns the command of a Python that has the packages of clients/python. Installs them with apt-get where that is possible. */
export function pythonPath(): string {
  const found = find()
  if (found !== undefined) return found
  if (!mayInstall())
    throw new Error(`clients/python needs python3, websockets and msgpack: apt install ${PACKAGES.join(' ')}`)
  installPackages(PACKAGES)
  const installed = find()
  if (installed === undefined)
    throw new Error(`apt-get installed ${PACKAGES.join(' ')}, but no python3 has them`)
  return installed
}

const find = (): string | undefined =>
  NAMES.find((name) => spawnSync(name, ['-c', 'import websockets, msgpack']).status === 0)

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) process.stdout.write(`${pythonPath()}\n`)
