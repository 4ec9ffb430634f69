import { type Debugger, type InspectorNotification, Session } from 'node:inspector'
import type { Turn } from './turns.ts'

/** The name on `globalThis` of the function that says where the thread of the rooms is: see `RoomCode.where`. */
export const WHERE = Symbol.for('roomful.where')

/** Where a thread is that stands still. */
export interface Location {
  /** The turn that started the code; undefined: it is no room code. */
  readonly turn: Turn | undefined
  /** The innermost frame of the stack that is not Node's: function, file and line. */
  readonly frame: string | undefined
}

const EXPRESSION = `globalThis[Symbol.for(${JSON.stringify(WHERE.description)})]()`

/**
 * Pauses the main thread for a moment, from a worker, and asks where it is. Undefined: it does not run JavaScript, but blocks in a native
 * call, or it has not answered within `timeoutMs`.
 */
export async function locate(timeoutMs: number): Promise<Location | undefined> {
  const session = new Session()
  try {
    session.connectToMainThread()
    const paused = new Promise<Debugger.CallFrame[]>((resolve) => {
      session.once('Debugger.paused', (event: InspectorNotification<Debugger.PausedEventDataType>) =>
        resolve(event.params.callFrames),
      )
    })
    session.post('Debugger.enable')
    session.post('Debugger.pause')
    const frames = await Promise.race([paused, after(timeoutMs)])
    return frames && (await locationIn(session, frames))
  } catch {
    return undefined // This Node has no inspector.
  } finally {
    session.post('Debugger.resume')
    session.disconnect()
  }
}

/** Internal frames of Node have no globals: the first one that has them answers. */
async function locationIn(session: Session, frames: readonly Debugger.CallFrame[]): Promise<Location> {
  for (const { callFrameId } of frames) {
    const text = await new Promise<unknown>((resolve) => {
      session.post(
        'Debugger.evaluateOnCallFrame',
        { callFrameId, expression: EXPRESSION, returnByValue: true },
        (error, answer) => resolve(error ? undefined : answer.result.value),
      )
    })
    if (typeof text !== 'string') continue
    const { turn, stack } = JSON.parse(text) as { turn?: Turn; stack: string }
    return { turn, frame: frameOf(stack) }
  }
  return { turn: undefined, frame: undefined }
}

/** The first frame below the evaluated expression. */
function frameOf(stack: string): string | undefined {
  const lines = stack.split('\n')
  const at = lines.findIndex((line) => line.includes('(eval at '))
  return lines
    .slice(at + 1)
    .find((line) => line.trim().startsWith('at ') && !line.includes('node:'))
    ?.trim()
    .slice('at '.length)
}

function after(ms: number): Promise<undefined> {
  return new Promise((resolve) => {
    setTimeout(() => resolve(undefined), ms).unref()
  })
}
