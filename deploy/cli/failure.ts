const EXPECTED = new Set([
  'WrongKeyring',
  'StoreMisconfigured',
  'StoreRefused',
  'StoreRejected',
  'StoreUnavailable',
  'NodeIdInUse',
  'NodeReplaced',
  'PackageMissing',
  'WorkerFailed',
  'CommandFailed',
])

/** What keeps a command from its work, where the person who runs it can put it right; then a stack would only hide the words. */
export function reasonOf(error: unknown): string | undefined {
  const { name, cause, code, address, port } = error as NodeJS.ErrnoException & {
    address?: string
    port?: number
  }
  if (name === 'RoomDefinitionError' && cause === undefined) return messageOf(error)
  if (EXPECTED.has(name)) return messageOf(error)
  if (code === 'EADDRINUSE')
    return `another process listens on ${address}:${port}; stop that, or choose another port (--help lists the …_PORT variables)`
  if (code === 'EACCES' && port !== undefined) return `this user may not listen on port ${port}`
  if (code === 'EADDRNOTAVAIL') return `${address} is no address of this machine`
  return undefined
}

/**
 * With which code a process ends for it: 2 is for what has to be configured otherwise, 3 for a node whose name another process has taken. A
 * process whose workers cannot serve ends with the code of the last one.
 */
export function exitCodeOf(error: unknown): number {
  const { name, exitCode } = error as Error & { exitCode?: number }
  if (name === 'WorkerFailed') return exitCode ?? 1
  if (name === 'NodeReplaced') return 3
  return name === 'NodeIdInUse' || name === 'PackageMissing' ? 2 : 1
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
