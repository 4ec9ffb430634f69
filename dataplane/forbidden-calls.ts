import { syncBuiltinESMExports } from 'node:module'
import { RoomLogicError } from './room/failures.ts'

/** Calls of Node that room code may not make. `room/builtins.ts` closes the classes of JavaScript. */

/** The objects of Node in which calls are forbidden: `process`, `node:child_process`, `node:crypto` and `Atomics`. */
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
  readonly crypto: Pick<
    typeof import('node:crypto'),
    'pbkdf2Sync' | 'scryptSync' | 'generatePrimeSync' | 'generateKeyPairSync'
  >
  readonly atomics: { readonly wait: typeof Atomics.wait }
}

/** Maximum number of rounds of `pbkdf2Sync`. They take about 0.1 s. The login of a database driver needs far fewer. */
const MAX_ROUNDS = 100_000
/** Maximum cost of `scryptSync`: N × r × p. It takes about 0.1 s. The default cost is half of it. */
const MAX_SCRYPT_COST = 2 ** 18
/** Maximum bits of a prime number. A larger one takes up to seconds. */
const MAX_PRIME_BITS = 512
/** Key pairs that are made in less than a millisecond. The others search for prime numbers. */
const QUICK_KEYS = /^(?:ec|ed25519|ed448|x25519|x448)$/

/** Marks a call that is forbidden already: all nodes of a process share these modules. */
const FORBIDDEN = Symbol('forbidden in room code')

type Call = (...parameters: never[]) => unknown
/** Returns the reason why room code may not make a call with these parameters. Undefined: it may. */
type Objection = (parameters: readonly unknown[]) => string | undefined

const ENDS: Objection = () => 'it may not end the process, which runs other rooms'
const WAITS: Objection = () =>
  'it would stop all rooms of the node until that process ends: use the asynchronous call, in a task'
const SLEEPS: Objection = () => 'it would stop all rooms of the node: await a promise, in a task'
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
  const { process, childProcess, crypto, atomics } = builtins
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
  forbid(crypto, 'scryptSync', ([, , , options]) => {
    const cost = scryptCost(options)
    return cost > MAX_SCRYPT_COST
      ? `N × r × p of ${cost} would stop all rooms of the node, at most ${MAX_SCRYPT_COST} may: use scrypt, in a task`
      : undefined
  })
  forbid(crypto, 'generatePrimeSync', ([bits, options]) =>
    Number(bits) > MAX_PRIME_BITS || (options as { safe?: boolean } | undefined)?.safe === true
      ? `only numbers of at most ${MAX_PRIME_BITS} bits that need not be safe primes are found soon: use generatePrime, in a task`
      : undefined,
  )
  forbid(crypto, 'generateKeyPairSync', ([type]) =>
    QUICK_KEYS.test(String(type))
      ? undefined
      : `${String(type)} keys take seconds, in which all rooms of the node stop: use generateKeyPair, in a task`,
  )
  forbid(atomics, 'Atomics.wait', SLEEPS)
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

/** Returns N × r × p of the options of `scryptSync`. */
function scryptCost(options: unknown): number {
  const {
    N,
    cost = N ?? 16_384,
    r,
    blockSize = r ?? 8,
    p,
    parallelization = p ?? 1,
  } = (options ?? {}) as {
    readonly [name in 'N' | 'cost' | 'r' | 'blockSize' | 'p' | 'parallelization']?: number
  }
  return cost * blockSize * parallelization
}
