import { expect } from 'vitest'

/** Where the scripted server is. */
export const URL = 'ws://roomful.test'

/** A `RoomfulError` with this code. */
export const code = (value: string) => expect.objectContaining({ name: 'RoomfulError', code: value })

/** Every status a client goes through from now on. */
export function statuses(client: {
  onConnectionChange(callback: (...change: unknown[]) => void): unknown
}): unknown[] {
  const seen: unknown[] = []
  client.onConnectionChange((status, error) =>
    seen.push(error === undefined ? status : [status, (error as { code: string }).code]),
  )
  return seen
}
