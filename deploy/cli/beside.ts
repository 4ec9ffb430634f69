import { spawn } from 'node:child_process'
import { stripVTControlCharacters } from 'node:util'

/** Error of the command that runs next to this process. Its output has the reason. */
class CommandFailed extends Error {
  override readonly name = 'CommandFailed'
}

/** Characters of the command's output in which its address is sought. */
const MOST_PRINTED = 4096

/** Exit codes of a command that has ended, or that Ctrl-C or this process has ended. */
const ENDED_CODES = [0, 130, 143]

/** Line with which Vite and other servers of pages print their address. */
const LOCAL = /local\W.*?(http:\/\/(?:localhost|127\.0\.0\.1|\[::1\]):\d+)/i

interface Beside {
  /** `ignore`: the keys are for this process. */
  readonly stdin: 'inherit' | 'ignore'
  /** Called with the address of a page that the command prints. */
  readonly onPage?: (url: string) => void
}

/**
 * Starts a command at this process's terminal, with `extra` in its environment. Vite passes variables with the prefix `VITE_` to pages.
 * `ended` resolves if the command ends with 0, and rejects otherwise.
 */
export function runBeside(
  [program = '', ...words]: readonly string[],
  extra: Readonly<Record<string, string>>,
  { stdin, onPage }: Beside,
) {
  // Behind a pipe, the command would print no colours.
  const colours = onPage && process.stdout.isTTY && { FORCE_COLOR: '1' }
  const env = { ...process.env, ...colours, ...extra }
  // On Windows, npm installs a script for the shell.
  const child = spawn(program, words, {
    stdio: [stdin, onPage ? 'pipe' : 'inherit', 'inherit'],
    env,
    shell: process.platform === 'win32',
  })
  let printed = ''
  child.stdout?.pipe(process.stdout, { end: false })
  child.stdout?.on('data', function look(chunk: Buffer) {
    printed = stripVTControlCharacters(printed + chunk).slice(-MOST_PRINTED)
    const [, url] = LOCAL.exec(printed) ?? []
    if (url === undefined) return
    child.stdout?.off('data', look)
    onPage?.(url)
  })
  const ended = new Promise<void>((resolve, reject) => {
    child.once('error', ({ message }) =>
      reject(new CommandFailed(`${program} cannot be started: ${message}`)),
    )
    child.once('exit', (code, signal) => {
      if (signal !== null || code === null || ENDED_CODES.includes(code)) resolve()
      else reject(new CommandFailed(`${program} has ended with ${code}`))
    })
  })
  const end = async (): Promise<void> => {
    child.kill()
    await ended.catch(() => undefined)
  }
  return { ended, end }
}
