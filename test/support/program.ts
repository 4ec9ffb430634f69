import { type ChildProcess, spawn } from 'node:child_process'
import { onTestFinished } from 'vitest'
import { roomfulProgram } from '../../deploy/local/machine.ts'
import { processTree, runEnvironment } from './run-folder.ts'

/** A running program. */
export interface Program {
  readonly child: ChildProcess
  /** Resolves with the exit code. Null: a signal ended the program. */
  readonly ended: Promise<number | null>
  /** Resolves when the output matches. Rejects if the program ends before. */
  said(pattern: RegExp): Promise<RegExpMatchArray>
  /** All output of the program. */
  output(): string
}

/** Returns the folder of the example rooms for `roomful`: the compiled ones if they are built, which a node loads in half the time. */
export const examplesFolder = (): string => (roomfulProgram().compiled ? 'dist/examples' : 'examples')

/** Starts `roomful` with these arguments and variables. The program ends with the test. */
export const runProgram = (words: string[], env: Record<string, string> = {}): Program =>
  endingWithTest(startProgram(words, env))

/** As `runProgram`, with a script of this repository. `script`: its path. */
export const runScript = (script: string, words: string[], env: Record<string, string> = {}): Program =>
  endingWithTest(startScript(script, words, env))

function endingWithTest(program: Program): Program {
  onTestFinished(() => void program.child.kill('SIGKILL'))
  return program
}

/** As `runProgram`, for a program that several tests share. The caller ends it. */
export const startProgram = (words: string[], env: Record<string, string> = {}): Program =>
  startCommand(process.execPath, [...roomfulProgram().words, ...words], env)

/** As `startProgram`, with a script. */
export const startScript = (script: string, words: string[], env: Record<string, string> = {}): Program =>
  startCommand(process.execPath, ['--import', 'tsx', script, ...words], env)

/** As `startProgram`, with a command line of bash in a folder. `end` ends the shell and its descendants. */
export function startTyped(line: string, folder: string, env: Record<string, string> = {}) {
  const program = startCommand('bash', ['-euo', 'pipefail', '-c', `cd "${folder}"\n${line}`], env)
  const { child } = program
  const end = (): void => {
    if (child.exitCode === null && child.signalCode === null)
      for (const pid of processTree(child.pid!)) process.kill(pid, 'SIGKILL')
  }
  return { ...program, end }
}

/** As `startProgram`, with a command in a folder. Default: the folder of the tests. */
export function startCommand(
  command: string,
  words: string[],
  env: Record<string, string> = {},
  folder = process.cwd(),
): Program {
  const child = spawn(command, words, {
    cwd: folder,
    env: { ...runEnvironment(), ...env },
  })
  // Ends the program if the test process exits first.
  const onExit = () => void child.kill('SIGKILL')
  process.once('exit', onExit)
  child.once('close', () => process.off('exit', onExit))
  let output = ''
  const waiting: (() => void)[] = []
  const hear = (chunk: Buffer): void => {
    output += chunk
    for (const look of waiting) look()
  }
  child.stdout.on('data', hear)
  child.stderr.on('data', hear)
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
  const said = (pattern: RegExp) =>
    new Promise<RegExpMatchArray>((resolve, reject) => {
      const look = () => {
        const match = output.match(pattern)
        if (match) resolve(match)
      }
      waiting.push(look)
      look()
      void ended.then(() => reject(new Error(`it ended without ${pattern}: ${output}`)))
    })
  return { child, ended, said, output: () => output }
}
