import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { RunResult } from '../../loadtest/result.ts'
import { type Program, startScript } from './program.ts'

const SCRIPT = fileURLToPath(new URL('../../loadtest/run.ts', import.meta.url))

/** `npm run loadtest`, while it runs. */
interface LoadRun {
  readonly program: Program
  /** Resolves at its end. */
  readonly outcome: Promise<LoadOutcome>
}

/** What came of it. */
export interface LoadOutcome {
  readonly exit_code: number | null
  /** All it has said. */
  readonly output: string
  /** Its report; rejects when it has written none. */
  readonly report: () => RunResult
}

/** Starts the command of the load test with these words, as a user would, and takes its report away. */
export async function startLoad(
  words: readonly string[],
  env: Record<string, string> = {},
): Promise<LoadRun> {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-load-'))
  const program = startScript(SCRIPT, [...words, '--out', folder], env)
  const outcome = program.ended.then(async (exitCode) => {
    const output = program.output()
    const text = await readFile(join(folder, 'report.json'), 'utf8').catch(() => undefined)
    await rm(folder, { recursive: true, force: true })
    return {
      exit_code: exitCode,
      output,
      report: () => {
        if (text === undefined) throw new Error(`it has written no report: ${output}`)
        return JSON.parse(text) as RunResult
      },
    }
  })
  return { program, outcome }
}
