import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { ruleOf } from '../conformance/client/books.ts'
import { pythonPath } from '../support/debian-package.ts'
import { MUTANTS, type Mutant } from './mutants.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const PYTHON = 'clients/python'
const LIMIT_MS = 150_000
/** What saw each mutant, in a file named after all that its run has read. So a run that was stopped continues. */
const SEEN = join(ROOT, 'node_modules/.cache/client-mutations')
/** Files that a run reads, in addition to the mutated one. */
const INPUTS = [
  ...['test_scenarios', 'test_vectors', 'fakes'].map((name) => `${PYTHON}/tests/${name}.py`),
  'client/scenarios.test.ts',
  'docs/protocol-scenarios.json',
  'docs/protocol-vectors.json',
]

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')

/** Runs vectors and scenarios with this source of the client in Python, up to the first failure. */
function runPython(file: string, source: string) {
  const folder = mkdtempSync(join(tmpdir(), 'client-mutations-'))
  try {
    cpSync(join(ROOT, PYTHON), join(folder, PYTHON), { recursive: true })
    symlinkSync(join(ROOT, 'docs'), join(folder, 'docs'))
    writeFileSync(join(folder, file), source)
    const cwd = join(folder, PYTHON)
    return spawnSync(pythonPath(), ['-m', 'unittest', 'discover', '-s', 'tests', '--failfast'], {
      cwd,
      timeout: LIMIT_MS,
      encoding: 'utf8',
    })
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** Runs the scenarios of level 6 with this source of a file of the SDK. */
function runSdk(file: string, source: string) {
  const words =
    'vitest run --config test/client-mutations/vitest.config.ts --project unit client/scenarios.test.ts'
  const env = { ...process.env, NO_COLOR: '1', MUTANT: JSON.stringify({ file: join(ROOT, file), source }) }
  const options = { cwd: ROOT, env, timeout: LIMIT_MS, encoding: 'utf8' } as const
  return spawnSync('npx', [...words.split(' '), '--testNamePattern', 'level 6'], options)
}

/** Returns the name of the first scenario or vector that fails with this source. Undefined: all pass. */
function failureWith(file: string, source: string): string | undefined {
  const { status, stdout, stderr } = (file.startsWith(PYTHON) ? runPython : runSdk)(file, source)
  if (status === 0) return undefined
  if (status === null) return `a limit of ${LIMIT_MS} ms`
  const output = stdout + stderr
  const failed = /^(?:FAIL|ERROR): (test_.*\n(?:.*\S)?)|^ FAIL .* > (.+)$/m.exec(output)
  if (!failed || output.includes('_FailedTest')) throw new Error(`the tests do not run: ${output}`)
  return (failed[1]?.split('\n').reverse().find(Boolean) ?? failed[2])!
}

/** Returns the paths of the files of a source. */
function filesOf(source: string): readonly string[] {
  if (!statSync(join(ROOT, source)).isDirectory()) return [source]
  return readdirSync(join(ROOT, source), { withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ name }) => `${source}/${name}`)
}

function failureOf({ source, text, instead }: Mutant): string | undefined {
  const found = filesOf(source).flatMap((file) => read(file).split(text).slice(1).fill(file))
  if (found.length !== 1)
    throw new Error(`${source} must have this text once, not ${found.length} times: ${text}`)
  const file = found[0]!
  const mutated = read(file).replace(text, () => instead)
  const hash = createHash('sha256').update(mutated)
  for (const path of [...INPUTS, ...filesOf(source)]) hash.update(read(path))
  const known = join(SEEN, hash.digest('hex'))
  if (existsSync(known)) return readFileSync(known, 'utf8')
  const failure = failureWith(file, mutated)
  mkdirSync(SEEN, { recursive: true })
  if (failure !== undefined) writeFileSync(known, failure)
  return failure
}

it.each([...new Set(MUTANTS.flatMap(({ source }) => filesOf(source)))])('%s has no mistake', (file) => {
  expect(failureWith(file, read(file))).toBe(undefined)
})

const rows = MUTANTS.map((mutant) => ({ ...mutant, number: ruleOf(mutant.rule).text.split('.')[0] }))

it.each(rows)('$number $rule: $name', (mutant) => {
  const failure = failureOf(mutant)
  const { number, rule, name } = mutant
  process.stdout.write(
    `${failure === undefined ? 'NOT SEEN' : 'seen'}: ${number} ${rule}: ${name}${failure === undefined ? '' : `; by ${failure}`}\n`,
  )
  expect(failure).not.toBe(undefined)
})
