import { type Debugger, type InspectorNotification, Session } from 'node:inspector'
import { isOwnFrame, type Turn } from '../../room/hooks.ts'

/** Property of `globalThis` with the function that returns the position of the rooms' thread; see `RoomCode.where`. */
export const WHERE = Symbol.for('roomful.where')

/** Position of a blocked thread. */
export interface Location {
  /** The turn that started the code. Undefined: it is not room code. */
  readonly turn: Turn | undefined
  /** The innermost frame of the stack outside Node: function, file and line. */
  readonly frame: string | undefined
}

const EXPRESSION = `globalThis[Symbol.for(${JSON.stringify(WHERE.description)})]()`

/** A main thread that runs JavaScript stops within this much CPU time of the process. */
const ENOUGH_CPU_MS = 400
const LOOK_MS = 25

/**
 * Finds the position of the main thread, from a worker. Undefined: the main thread blocks in a native call, because it has not stopped within
 * `timeoutMs`. If the process gets little CPU time on a busy machine, it waits twice as long.
 */
export const locate = (timeoutMs: number): Promise<Location | undefined> => whilePaused(timeoutMs, locationIn)

/**
 * Ends the room code that runs on the main thread; `catch` and `finally` cannot stop this. Needed when the boundary has tried to end a turn, but a
 * debugger pause at that moment has swallowed it.
 */
export async function endRoomCode(timeoutMs: number): Promise<void> {
  await whilePaused(timeoutMs, async (session, frames) => {
    const { turn } = await locationIn(session, frames)
    if (turn) session.post('Runtime.terminateExecution')
  })
}

/** Pauses the main thread for `look`. Undefined: it did not stop in time, or Node was built without the inspector. */
async function whilePaused<T>(
  timeoutMs: number,
  look: (session: Session, frames: readonly Debugger.CallFrame[]) => Promise<T>,
): Promise<T | undefined> {
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
    const frames = await Promise.race([paused, patience(timeoutMs)])
    return frames && (await look(session, frames))
  } catch {
    return undefined
  } finally {
    session.post('Debugger.resume')
    session.disconnect()
  }
}

/** Evaluates in the first frame that has globals. Internal frames of Node have none. */
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

/** Returns the first frame below the evaluated expression that is not roomful's. */
function frameOf(stack: string): string | undefined {
  const lines = stack.split('\n')
  const at = lines.findIndex((line) => line.includes('(eval at '))
  const frames = lines
    .slice(at + 1)
    .map((line) => line.trim())
    .filter((line) => line.startsWith('at ') && !line.includes('node:'))
  const frame = frames.find((line) => !isOwnFrame(line)) ?? frames[0]
  return frame?.slice('at '.length)
}

/** Resolves when the main thread has had enough time to stop. */
async function patience(timeoutMs: number): Promise<undefined> {
  const began = performance.now()
  const { user, system } = process.cpuUsage()
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS))
    const passedMs = performance.now() - began
    const used = process.cpuUsage({ user, system })
    const enough = (used.user + used.system) / 1000 >= ENOUGH_CPU_MS
    if (passedMs >= (enough ? timeoutMs : 2 * timeoutMs)) return undefined
  }
}
