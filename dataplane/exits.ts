import { syncBuiltinESMExports } from 'node:module'
import { RoomLogicError } from './rooms/failures.ts'

/** The functions of `process` with which code can end its own process. */
type Exits = Pick<NodeJS.Process, 'exit' | 'kill' | 'abort' | 'pid'>

/**
 * Makes `process.exit`, `process.abort` and `process.kill` of this very process throw where room code calls them: a handler that ends its node
 * would get the same message again at the next one. Returns a function that undoes it.
 */
export function forbidExits(process: Exits, inRoomCode: () => boolean): () => void {
  const { exit, kill, abort } = process
  const refuse = (call: string): void => {
    if (inRoomCode())
      throw new RoomLogicError(`room code called ${call}: it may not end the process, which runs other rooms`)
  }
  process.exit = ((code?: number) => {
    refuse('process.exit')
    return exit.call(process, code)
  }) as Exits['exit']
  process.abort = (() => {
    refuse('process.abort')
    return abort.call(process)
  }) as Exits['abort']
  process.kill = ((pid: number, signal?: string | number) => {
    // 0 and negative numbers name groups of processes, which this one may be part of.
    if (signal !== 0 && (pid === process.pid || pid <= 0)) refuse('process.kill')
    return kill.call(process, pid, signal)
  }) as Exits['kill']
  // Also for code that imports them by name.
  syncBuiltinESMExports()
  return () => {
    Object.assign(process, { exit, kill, abort })
    syncBuiltinESMExports()
  }
}
