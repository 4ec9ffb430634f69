import { type ChildProcess, spawn } from 'node:child_process'
import { onTestFinished } from 'vitest'
import { roomfulProgram } from '../../deploy/local/machine.ts'
import { processTree, runEnvironment } from './run-folder.ts'

/** The command line, running. */
export interface Program {
  readonly child: ChildProcess
  /** The exit code; null when a signal ended it. */
  readonly ended: Promise<number | null>
  /** Resolves when its output has matched; rejects when it ends before. */
  said(pattern: RegExp): Promise<RegExpMatchArray>
  /** Everything it has said. */
  output(): string
}

/** Starts `roomful` with these words and variables, and listens to all it says. It ends with the test that started it. */
export const runProgram = (words: string[], env: Record<string, string> = {}): Program =>
  endingWithTest(startProgram(words, env))

/** The same with any script of this repository; `script` is its path. */
export const runScript = (script: string, words: string[], env: Record<string, string> = {}): Program =>
  endingWithTest(startScript(script, words, env))

function endingWithTest(program: Program): Program {
  onTestFinished(() => void program.child.kill('SIGKILL'))
  return program
}

/** As `runProgram`, for what several tests share: its end is the caller's to see to. */
export const startProgram = (words: string[], env: Record<string, string> = {}): Program =>
  startCommand(process.execPath, [...roomfulProgram().words, ...words], env)

/** As `startProgram`, with any script. */
export const startScript = (script: string, words: string[], env: Record<string, string> = {}): Program =>
  startCommand(process.execPath, ['--import', 'tsx', script, ...words], env)

/** As `startProgram`, with what is typed into a shell in this folder. `end` ends it, and all that it has started. */
export function startTyped(line: string, folder: string, env: Record<string, string> = {}) {
  const program = startCommand('bash', ['-euo', 'pipefail', '-c', `cd "${folder}"\n${line}`], env)
  const { child } = program
  const end = (): void => {
    if (child.exitCode === null && child.signalCode === null)
      for (const pid of processTree(child.pid!)) process.kill(pid, 'SIGKILL')
  }
  return { ...program, end }
}

/** As `startProgram`, with any command. */
export function startCommand(command: string, words: string[], env: Record<string, string> = {}): Program {
  const child = spawn(command, words, {
    env: { ...runEnvironment(), ...env },
  })
  // For a run that ends before its parent could end it.
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
