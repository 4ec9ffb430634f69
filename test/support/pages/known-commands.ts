import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { COMMANDS } from '../../../deploy/cli/arguments.ts'
import { parseRun } from '../../../loadtest/options.ts'
import { SCENARIOS } from '../../../loadtest/scenarios/index.ts'
import { variables } from '../../../shared/config/variables.ts'
import { readCompose } from '../compose.ts'
import { ROOT } from './pages.ts'

/** Whether what a command on a page names is there. Of programs and words that are not known here, nothing is said. */

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')
const exists = (path: string): boolean => existsSync(join(ROOT, path))
const manifest = JSON.parse(read('package.json')) as { version: string; scripts: Record<string, string> }
const variableNames = new Set<string>(variables().map(([name]) => name))

/** What is wrong with a command, in words; undefined: nothing. */
type Check = (words: readonly string[]) => string | undefined

const CHECKS: Readonly<Record<string, Check>> = {
  docker,
  helm,
  kubectl,
  npm,
  roomful,
  systemctl: ([, ...units]) => first(units.filter((word) => !word.startsWith('-')).map(unit)),
  journalctl: ([, name = '']) => unit(name),
  // A file without a folder is the reader's own.
  npx: ([, script = '']) => (script.includes('/') ? missing(script) : undefined),
  sudo: (words) => objectionTo(words.filter((word) => !word.startsWith('-'))),
  env: (words) => {
    const command = words.findIndex((word) => !/^[A-Z_]+=/.test(word))
    return first(words.slice(0, command).map(assignment)) ?? objectionTo(words.slice(command))
  },
}

/** What is wrong with a command, given as its words; undefined: nothing that can be told here. */
export const objectionTo = ([program = '', ...words]: readonly string[]): string | undefined =>
  CHECKS[program.replace(/^.*\//, '')]?.(words)

/** What is wrong with the name of a variable; undefined: there is such a one. */
export const variable = (name: string): string | undefined =>
  variableNames.has(name.replace(/_FILE$/, '')) ? undefined : `there is no variable ${name}`

const first = (objections: readonly (string | undefined)[]): string | undefined => objections.find(Boolean)
const missing = (path: string): string | undefined => (exists(path) ? undefined : `there is no ${path}`)
const assignment = (word: string): string | undefined => variable(word.split('=')[0]!)

/** The values that an option is given in. */
const valuesOf = (words: readonly string[], option: string): string[] =>
  words.flatMap((word, at) =>
    word === option ? [words[at + 1]!] : word.startsWith(`${option}=`) ? [word.slice(option.length + 1)] : [],
  )

function roomful([command = '']: readonly string[]): string | undefined {
  const known = ['--help', '--version', 'examples', ...Object.keys(COMMANDS)]
  return known.includes(command) ? undefined : `roomful has no command ${command}`
}

function docker(words: readonly string[]): string | undefined {
  if (words[0] === 'compose') return compose(words.slice(1))
  const files = words[0] === 'build' ? valuesOf(words, '-f') : []
  const images = words.filter((word) => /(^|\/)roomful:/.test(word)).map(image)
  return first([...files.map(missing), ...valuesOf(words, '-e').map(assignment), ...images])
}

/** An image of this version, in any registry. */
const image = (name: string): string | undefined =>
  name.endsWith(`roomful:${manifest.version}`)
    ? undefined
    : `the image is ${name}, and this version is ${manifest.version}`

function compose(words: readonly string[]): string | undefined {
  const files = valuesOf(words, '-f')
  const [verb = '', ...named] = words.filter((word) => !word.startsWith('-') && !files.includes(word))
  const services = Object.keys(readCompose(join(ROOT, 'deploy/compose.yaml')).services)
  const meant = verb === 'exec' || verb === 'run' ? named.slice(0, 1) : named
  return first([
    ...files.filter((file) => file.startsWith('deploy/')).map(missing),
    ...meant.map((name) => (services.includes(name) ? undefined : `compose.yaml has no service ${name}`)),
  ])
}

function helm(words: readonly string[]): string | undefined {
  const values = parse(read('deploy/helm/roomful/values.yaml'))
  const chart = words.filter((word) => word.startsWith('deploy/')).map(missing)
  const set = valuesOf(words, '--set').map((text) => {
    const path = text.split('=')[0]!
    const value = path.split('.').reduce((within, name) => within?.[name], values)
    return value === undefined ? `values.yaml has no ${path}` : undefined
  })
  return first([...chart, ...set])
}

function kubectl(words: readonly string[]): string | undefined {
  const secret = read('deploy/helm/roomful/templates/secret.yaml')
  const keys = valuesOf(words, '--from-literal').map((literal) => literal.split('=')[0]!)
  return first([
    ...keys.map((key) => (secret.includes(key) ? undefined : `the chart has no ${key} in its Secret`)),
    ...words.map(workload),
  ])
}

/** An object of the chart, as `deployment/game-roomful-node`. */
function workload(name: string): string | undefined {
  const [, kind, component] = /^(deployment|service)\/game-roomful-(\w+)$/.exec(name) ?? []
  if (kind === undefined) return undefined
  const template = `deploy/helm/roomful/templates/${component}.yaml`
  const made = exists(template) && read(template).toLowerCase().includes(`\nkind: ${kind}\n`)
  return made ? undefined : `the chart makes no ${name}`
}

/** A unit of ours, by its instance. */
const unit = (name: string): string | undefined =>
  name.startsWith('roomful-') && name !== 'roomful-*'
    ? missing(`deploy/systemd/${name.replace(/@.*/, '@')}.service`)
    : undefined

function npm([verb = '', ...words]: readonly string[]): string | undefined {
  if (!['run', 'test', 'start'].includes(verb)) return undefined
  const [script = '', ...behind] = verb === 'run' ? words : [verb, ...words]
  if (manifest.scripts[script] === undefined) return `package.json has no script ${script}`
  const given = behind[0] === '--' ? behind.slice(1) : behind
  if (script === 'test') return first(given.filter((word) => !word.startsWith('-')).map(missing))
  if (script !== 'loadtest') return undefined
  const asked = parseRun(given, SCENARIOS, {}, 2)
  return asked.kind === 'mistake' ? asked.message : undefined
}
