import { readFileSync } from 'node:fs'
import {
  type Copy,
  DockerfileParser,
  type Env,
  type From,
  type Healthcheck,
  type Instruction,
} from 'dockerfile-ast'

/** One thing that is done to a stage, in order. */
export type Step =
  | { readonly kind: 'workdir'; readonly path: string }
  | {
      readonly kind: 'copy'
      /** The stage it comes from; undefined: the build context. */
      readonly from: string | undefined
      readonly sources: readonly string[]
      readonly target: string
    }
  | { readonly kind: 'run'; readonly command: string; readonly env: Readonly<Record<string, string>> }

/** One `FROM` and what follows it. */
export interface Stage {
  readonly name: string | undefined
  readonly base: string
  readonly steps: readonly Step[]
  readonly env: Readonly<Record<string, string>>
  readonly labels: Readonly<Record<string, string>>
  readonly user: string | undefined
  readonly workdir: string
  readonly exposed: readonly number[]
  readonly stopSignal: string | undefined
  /** Words, as the exec form has them; undefined where the shell form is used, or nothing. */
  readonly entrypoint: readonly string[] | undefined
  readonly cmd: readonly string[] | undefined
  readonly healthcheck: HealthcheckOf | undefined
}

interface HealthcheckOf {
  readonly words: readonly string[]
  /** `interval`, `timeout`, `start-period` and `retries`, as they are written. */
  readonly options: Readonly<Record<string, string>>
}

const DOCKERFILE = new URL('../../../deploy/image/Dockerfile', import.meta.url)

/** The Dockerfile of this repository: its text, its stages, and the last of these, which is the image. */
export function readImage(): {
  readonly text: string
  readonly stages: readonly Stage[]
  readonly final: Stage
} {
  const text = readFileSync(DOCKERFILE, 'utf8')
  const stages = parseStages(text)
  return { text, stages, final: stages.at(-1)! }
}

/** Reads what a Dockerfile does. Throws at an instruction that it does not know, so that none is passed over. */
export function parseStages(text: string): Stage[] {
  const stages: Mutable<Stage>[] = []
  for (const instruction of DockerfileParser.parse(text).getInstructions()) {
    const keyword = instruction.getKeyword()
    if (keyword === 'FROM') stages.push(newStage(instruction as From))
    else {
      const stage = stages.at(-1)
      if (stage === undefined) throw new Error(`${keyword} comes before the first FROM`)
      apply(stage, keyword, instruction)
    }
  }
  return stages
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

const newStage = (from: From): Mutable<Stage> => ({
  name: from.getBuildStage() ?? undefined,
  base: from.getImage()!,
  steps: [],
  env: {},
  labels: {},
  user: undefined,
  workdir: '/',
  exposed: [],
  stopSignal: undefined,
  entrypoint: undefined,
  cmd: undefined,
  healthcheck: undefined,
})

function apply(stage: Mutable<Stage>, keyword: string, instruction: Instruction): void {
  const words = instruction.getArguments().map((argument) => argument.getValue())
  const content = instruction.getArgumentsContent() ?? ''
  switch (keyword) {
    case 'WORKDIR':
      stage.workdir = words[0]!
      stage.steps = [...stage.steps, { kind: 'workdir', path: stage.workdir }]
      break
    case 'COPY': {
      const from = (instruction as Copy).getFromFlag()?.getValue() ?? undefined
      stage.steps = [
        ...stage.steps,
        { kind: 'copy', from, sources: words.slice(0, -1), target: words.at(-1)! },
      ]
      break
    }
    case 'RUN':
      stage.steps = [...stage.steps, { kind: 'run', command: content, env: stage.env }]
      break
    case 'ARG':
      // Without --build-arg it is empty, as here.
      break
    case 'ENV':
      stage.env = { ...stage.env, ...properties(instruction as Env) }
      break
    case 'LABEL':
      stage.labels = { ...stage.labels, ...properties(instruction as Env) }
      break
    case 'USER':
      stage.user = words[0]
      break
    case 'EXPOSE':
      stage.exposed = words.map(Number)
      break
    case 'STOPSIGNAL':
      stage.stopSignal = words[0]
      break
    case 'ENTRYPOINT':
      stage.entrypoint = execForm(content)
      break
    case 'CMD':
      stage.cmd = execForm(content)
      break
    case 'HEALTHCHECK':
      stage.healthcheck = healthcheck(instruction as Healthcheck, content)
      break
    default:
      throw new Error(`${keyword} is an instruction these tests cannot follow; teach them`)
  }
}

const properties = (instruction: Env): Record<string, string> =>
  Object.fromEntries(instruction.getProperties().map((one) => [one.getName(), one.getValue() ?? '']))

/** The words of the exec form; undefined for the shell form. */
function execForm(content: string): string[] | undefined {
  try {
    const words: unknown = JSON.parse(content)
    return Array.isArray(words) ? words : undefined
  } catch {
    return undefined
  }
}

function healthcheck(instruction: Healthcheck, content: string): HealthcheckOf | undefined {
  const words = execForm(content.replace(/^CMD\s+/, ''))
  if (words === undefined) return undefined
  const options = instruction.getFlags().map((flag) => [flag.getName(), flag.getValue() ?? ''])
  return { words, options: Object.fromEntries(options) }
}
