import { syncBuiltinESMExports } from 'node:module'
import { RoomLogicError } from './room/failures.ts'

/** The modules of Node in which calls are forbidden: `process`, `node:child_process` and `node:crypto`. */
interface Builtins {
  readonly process: Pick<
    NodeJS.Process,
    | 'exit'
    | 'kill'
    | 'abort'
    | 'pid'
    | 'emit'
    | 'disconnect'
    | 'removeAllListeners'
    | 'setUncaughtExceptionCaptureCallback'
  >
  readonly childProcess: Pick<typeof import('node:child_process'), 'execSync' | 'execFileSync' | 'spawnSync'>
  readonly crypto: Pick<typeof import('node:crypto'), 'pbkdf2Sync'>
}

/** Maximum number of rounds of `pbkdf2Sync`. They take about 0.1 s. The login of a database driver needs far fewer. */
const MAX_ROUNDS = 100_000

/** Marks a call that is forbidden already: all nodes of a process share these modules. */
const FORBIDDEN = Symbol('forbidden in room code')

type Call = (...parameters: never[]) => unknown
/** Returns the reason why room code may not make a call with these parameters. Undefined: it may. */
type Objection = (parameters: readonly unknown[]) => string | undefined

const ENDS: Objection = () => 'it may not end the process, which runs other rooms'
const WAITS: Objection = () =>
  'it would stop all rooms of the node until that process ends: use the asynchronous call, in a task'
const DEAFENS: Objection = () =>
  'the process would miss signals and errors of other rooms: remove the listeners of your own objects only'

/** Events of a process after which it ends or drains. Node emits others in room code, such as `warning` and `unhandledRejection`. */
const ENDING = /^(?:SIG.*|disconnect|message|internalMessage|beforeExit)$/

/**
 * Makes some calls throw inside room code. Calls that end or drain the process: the next node would get the same message and end too. Calls
 * that block in native code: only the end of the process can stop them. Calls outside of room code stay as they are. A second call for the
 * same modules has no effect.
 */
export function forbidCalls(builtins: Builtins, inRoomCode: () => boolean): void {
  const { process, childProcess, crypto } = builtins
  forbid(process, 'process.exit', ENDS)
  forbid(process, 'process.abort', ENDS)
  // process.exit and process.kill call these two.
  forbid(process, 'process.reallyExit', ENDS)
  forbid(process, 'process._kill', endsThisProcess)
  forbid(process, 'process.kill', endsThisProcess)
  forbid(process, 'process.emit', ([event]) => (ENDING.test(String(event)) ? ENDS([]) : undefined))
  forbid(process, 'process.disconnect', ENDS)
  forbid(process, 'process.removeAllListeners', DEAFENS)
  forbid(process, 'process.setUncaughtExceptionCaptureCallback', DEAFENS)
  forbid(childProcess, 'execSync', WAITS)
  forbid(childProcess, 'execFileSync', WAITS)
  forbid(childProcess, 'spawnSync', WAITS)
  forbid(crypto, 'pbkdf2Sync', ([, , rounds]) =>
    Number(rounds) > MAX_ROUNDS
      ? `${String(rounds)} rounds would stop all rooms of the node, at most ${MAX_ROUNDS} may: use pbkdf2, in a task`
      : undefined,
  )
  // Also for code that imports the functions by name.
  syncBuiltinESMExports()

  /** 0 and negative numbers name groups of processes, which may include this one. Node converts texts and objects to numbers. */
  function endsThisProcess([pid, signal]: readonly unknown[]): string | undefined {
    const isOther = typeof pid === 'number' && pid > 0 && pid !== process.pid
    return isOther || signal === 0 ? undefined : ENDS([])
  }

  function forbid(owner: object, name: string, objection: Objection): void {
    const calls = owner as Record<string, Call>
    const key = name.slice(name.indexOf('.') + 1)
    const call = calls[key]
    if (!call || FORBIDDEN in call) return
    const guarded: Call = (...parameters) => {
      const why = inRoomCode() ? objection(parameters) : undefined
      if (why !== undefined) throw new RoomLogicError(`room code called ${name}: ${why}`)
      return call.apply(owner, parameters)
    }
    calls[key] = Object.assign(guarded, { [FORBIDDEN]: true })
  }
}
