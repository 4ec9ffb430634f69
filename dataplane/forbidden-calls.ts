import { syncBuiltinESMExports } from 'node:module'
import { RoomLogicError } from './rooms/failures.ts'

/** The modules of Node in which calls are forbidden: `process`, `node:child_process` and `node:crypto`. */
interface Builtins {
  readonly process: Pick<NodeJS.Process, 'exit' | 'kill' | 'abort' | 'pid'>
  readonly childProcess: Pick<typeof import('node:child_process'), 'execSync' | 'execFileSync' | 'spawnSync'>
  readonly crypto: Pick<typeof import('node:crypto'), 'pbkdf2Sync'>
}

/** Maximum number of rounds of `pbkdf2Sync`. They take about 0.1 s. The login of a database driver needs far fewer. */
const MAX_ROUNDS = 100_000

type Call = (...parameters: never[]) => unknown
/** Returns the reason why room code may not make a call with these parameters. Undefined: it may. */
type Objection = (parameters: readonly unknown[]) => string | undefined

const ENDS: Objection = () => 'it may not end the process, which runs other rooms'
const WAITS: Objection = () =>
  'it would stop all rooms of the node until that process ends: use the asynchronous call, in a task'

/**
 * Makes some calls throw inside room code. Calls that end the process: the next node would get the same message and end too. Calls that
 * block in native code: only the end of the process can stop them. Returns a function that removes the restriction.
 */
export function forbidCalls(builtins: Builtins, inRoomCode: () => boolean): () => void {
  const { process, childProcess, crypto } = builtins
  const undo = [
    forbid(process, 'process.exit', ENDS),
    forbid(process, 'process.abort', ENDS),
    // process.exit and process.kill call these two.
    forbid(process, 'process.reallyExit', ENDS),
    forbid(process, 'process._kill', endsThisProcess),
    forbid(process, 'process.kill', endsThisProcess),
    forbid(childProcess, 'execSync', WAITS),
    forbid(childProcess, 'execFileSync', WAITS),
    forbid(childProcess, 'spawnSync', WAITS),
    forbid(crypto, 'pbkdf2Sync', ([, , rounds]) =>
      Number(rounds) > MAX_ROUNDS
        ? `${String(rounds)} rounds would stop all rooms of the node, at most ${MAX_ROUNDS} may: use pbkdf2, in a task`
        : undefined,
    ),
  ]
  // Also for code that imports the functions by name.
  syncBuiltinESMExports()
  return () => {
    for (const allow of undo) allow()
    syncBuiltinESMExports()
  }

  /** 0 and negative numbers name groups of processes, which may include this one. Node converts texts and objects to numbers. */
  function endsThisProcess([pid, signal]: readonly unknown[]): string | undefined {
    const isOther = typeof pid === 'number' && pid > 0 && pid !== process.pid
    return isOther || signal === 0 ? undefined : ENDS([])
  }

  function forbid(owner: object, name: string, objection: Objection): () => void {
    const calls = owner as Record<string, Call>
    const key = name.slice(name.indexOf('.') + 1)
    const call = calls[key]
    if (!call) return () => {}
    calls[key] = (...parameters) => {
      const why = inRoomCode() ? objection(parameters) : undefined
      if (why !== undefined) throw new RoomLogicError(`room code called ${name}: ${why}`)
      return call.apply(owner, parameters)
    }
    return () => {
      calls[key] = call
    }
  }
}

/** Classes whose members are inherited by every object, array, string, number and boolean. */
const BUILTINS = [Object, Array, Function, String, Number, Boolean]

/**
 * Makes assignments fail that would add a property to these classes, their prototypes or their methods. Room code also has objects and arrays that
 * roomful does not guard, such as `Object.values(state.players)`. If it indexes them by a string from a client, `[name].count = 1` would write
 * to objects that all rooms of the process share. Must be called after everything is loaded: code that extends these classes later gets
 * a TypeError.
 */
export function closeBuiltins(builtins: readonly { readonly prototype: unknown }[] = BUILTINS): void {
  for (const builtin of builtins)
    for (const owner of [builtin, builtin.prototype] as object[]) {
      for (const { value } of Object.values(Object.getOwnPropertyDescriptors(owner)))
        if (typeof value === 'function') Object.preventExtensions(value)
      Object.preventExtensions(owner)
    }
}
