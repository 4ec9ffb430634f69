import { HIDE } from './hide.ts'
import { KEEP } from './keep.ts'
import { MOVE } from './move.ts'
import { PLAY } from './play.ts'
import { ADDRESS, HOSTS, type Scenario, STARTS, type Step } from './script.ts'
import { SMALL } from './small.ts'

/** Content of docs/protocol-scenarios.json. */
export interface Scenarios {
  readonly about: string
  readonly client: {
    readonly address: string
    readonly hosts: readonly string[]
    readonly project_id: string
  }
  readonly starts: Readonly<Record<string, readonly Step[]>>
  readonly scenarios: readonly Scenario[]
}

const ABOUT =
  'What a client does, step by step: see "Scenarios" in protocol.md. `start` names steps that come before those of the scenario. The n-th token that the client asks for is token-n. `client` is how it is configured.'

const starts = Object.entries(STARTS).map(([name, start]) => [name, start().script.steps] as const)
const scenarios = [...PLAY, ...KEEP, ...HIDE, ...SMALL, ...MOVE]

/** Writes docs/protocol-scenarios.json, one step on a line. */
export function scenariosJson(): string {
  const list = (steps: readonly Step[], indent: string) =>
    steps.map((step) => `${indent}${JSON.stringify(step)}`).join(',\n')
  const started = starts.map(
    ([name, steps]) => `    ${JSON.stringify(name)}: [\n${list(steps, '      ')}\n    ]`,
  )
  const written = scenarios.map(
    ({ steps, ...head }) =>
      `    {${JSON.stringify(head).slice(1, -1)}, "steps": [\n${list(steps, '      ')}\n    ]}`,
  )
  const client = JSON.stringify({ address: ADDRESS, hosts: HOSTS, project_id: 'prj_1' })
  return `{
  "about": ${JSON.stringify(ABOUT)},
  "client": ${client},
  "starts": {
${started.join(',\n')}
  },
  "scenarios": [
${written.join(',\n')}
  ]
}
`
}
