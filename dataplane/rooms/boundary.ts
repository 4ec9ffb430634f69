import { type Context, createContext, Script } from 'node:vm'

/** Code did not return in time and was cut off. */
export class Overrun extends Error {
  override readonly name = 'Overrun'
}

/** Runs a function of this realm; only a script can be run with a timeout. */
const CALL = new Script('run()')

/** Cuts off synchronous code that takes too long: V8 ends it past every `catch` and `finally`. A call costs about 0.1 ms. */
export class Boundary {
  #context: Context | undefined

  /**
   * Returns what `code` returns and throws what it throws, or an Overrun after `limitMs` milliseconds. What it has done until then remains.
   * Code after an `await`, and native calls that block, are not reached.
   */
  run<T>(code: () => T, limitMs: number): T {
    let result: { readonly value: T } | { readonly thrown: unknown } | undefined
    this.#context ??= createContext({ run: undefined })
    this.#context.run = () => {
      try {
        result = { value: code() }
      } catch (thrown) {
        result = { thrown }
      }
    }
    const release = holdOutput()
    try {
      CALL.runInContext(this.#context, { timeout: limitMs })
    } catch (error) {
      if (!result) throw new Overrun(`it did not return within ${limitMs} ms`, { cause: error })
    } finally {
      release()
    }
    if ('thrown' in result!) throw result.thrown
    return result!.value
  }
}

/** Maximum number of writes of one guarded turn to standard output that are kept. */
const MAX_HELD = 1000

/**
 * Keeps what is written to standard output and standard error until the returned function is called: a write that is cut off half way would
 * leave the stream waiting for ever, and the log with it.
 */
function holdOutput(): () => void {
  const { stdout, stderr } = process
  const held: (() => void)[] = []
  const hold = (stream: NodeJS.WriteStream): (() => void) => {
    const { write } = stream
    const keep = (...written: unknown[]): boolean => {
      if (held.length < MAX_HELD) held.push(() => void Reflect.apply(write, stream, written))
      return true
    }
    stream.write = keep as typeof write
    return () => {
      stream.write = write
    }
  }
  const restore = [hold(stdout), hold(stderr)]
  return () => {
    for (const undo of restore) undo()
    for (const writing of held) writing()
  }
}
