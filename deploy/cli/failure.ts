/** What keeps a command from its work, where whoever runs it can put it right; then a stack would only hide the words. */
export function reasonOf(error: unknown): string | undefined {
  const { name, cause, code, address, port } = error as NodeJS.ErrnoException & {
    address?: string
    port?: number
  }
  if (name === 'RoomDefinitionError' && cause === undefined) return messageOf(error)
  if (name === 'WrongKeyring' || name === 'StoreMisconfigured' || name === 'StoreUnavailable')
    return messageOf(error)
  if (code === 'EADDRINUSE')
    return `somebody else listens on ${address}:${port}; stop that, or choose another port (--help lists the …_PORT variables)`
  if (code === 'EACCES' && port !== undefined) return `this user may not listen on port ${port}`
  if (code === 'EADDRNOTAVAIL') return `${address} is no address of this machine`
  return undefined
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
