import { HOOKS, type TurnCause } from './turns.ts'

/** A stuck turn as the room's record keeps it for the next owner. */
export const encodeNote = ({ hook, subject, ref, type }: TurnCause): Uint8Array =>
  new TextEncoder().encode(JSON.stringify({ hook, subject, ref, type }))

/** Undefined: not one that this version has written. */
export function decodeNote(bytes: Uint8Array): TurnCause | undefined {
  try {
    const { hook, subject, ref, type } = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
    const sound =
      HOOKS.includes(hook) &&
      typeof subject === 'string' &&
      typeof type === 'string' &&
      Number.isSafeInteger(ref)
    return sound ? { hook, subject, ref, type } : undefined
  } catch {
    return undefined
  }
}
