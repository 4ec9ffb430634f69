import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parse } from 'yaml'
import { parseRun } from '../../../loadtest/options.ts'
import { SCENARIOS } from '../../../loadtest/scenarios/index.ts'
import { variables } from '../../../shared/config/variables.ts'
import { readCompose } from '../compose.ts'
import { ROOT } from './pages.ts'

/** What is known of the commands that pages name but no test can run here: whether all they name is there. */

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')
const exists = (path: string): boolean => existsSync(join(ROOT, path))
const manifest = JSON.parse(read('package.json')) as { version: string; scripts: Record<string, string> }
const services = Object.keys(readCompose(join(ROOT, 'deploy/compose.yaml')).services)
const variable_names = new Set<string>(variables().map(([name]) => name))

/** What is wrong with a command, in words; undefined: nothing. */
type Check = (words: readonly string[]) => string | undefined

const CHECKS: Readonly<Record<string, Check>> = {
  docker,
  helm,
  kubectl,
  systemctl,
  journalctl: ([flag, unit = '']) =>
    flag === '-u' ? unitThatIsThere(unit) : `journalctl knows no ${flag} here`,
  npm,
  // A file without a folder is the reader's own.
  npx: ([tsx, script = '']) =>
    tsx === 'tsx' && (exists(script) || !script.includes('/')) ? undefined : `there is no ${script}`,
  roomful: ([command]) => roomful(command),
  sudo: (words) => objectionTo(words),
  env: (words) => {
    const assigned = words.filter((word) => /^[A-Z_]+=/.test(word))
    return (
      assigned.map((word) => variable(word.split('=')[0]!)).find(Boolean) ??
      objectionTo(words.slice(assigned.length))
    )
  },
  '/opt/roomful/node_modules/.bin/roomful': ([command]) => roomful(command),
  curl: (words) => port(words.find((word) => word.includes('//')) ?? ''),
  openssl: () => undefined,
  chown: () => undefined,
}

/** What is wrong with a command, given as its words; undefined: nothing that can be told here. */
export function objectionTo([program = '', ...words]: readonly string[]): string | undefined {
  const check = CHECKS[program]
  return check
    ? check(words)
    : `no test knows what ${program} takes: teach it in test/support/pages/known-commands.ts`
}

/** What is wrong with the name of a variable; undefined: there is such a one. */
export function variable(name: string): string | undefined {
  return variable_names.has(name) || variable_names.has(name.replace(/_FILE$/, ''))
    ? undefined
    : `there is no variable ${name}`
}

const roomful = (command: string | undefined): string | undefined =>
  ['control', 'dataplane', 'dev', 'rekey', '--help', '--version'].includes(command ?? '')
    ? undefined
    : `roomful has no command ${command}`

/** Words without leading flags: those in `bare` stand alone, those in `taking` have a value. */
function withoutFlags(words: readonly string[], bare: readonly string[], taking: readonly string[] = []) {
  const values: [flag: string, value: string][] = []
  let at = 0
  for (; words[at]?.startsWith('-') && words[at] !== '--'; at++) {
    const [flag = '', inline] = words[at]!.split('=', 2)
    if (bare.includes(flag)) continue
    if (!taking.includes(flag)) return { problem: `no test knows the option ${flag}`, values, rest: [] }
    values.push([flag, inline ?? words[++at] ?? ''])
  }
  return { problem: undefined, values, rest: words.slice(at) }
}

function docker([verb, ...words]: readonly string[]): string | undefined {
  if (verb === 'compose') return compose(words)
  if (verb === 'push') return image(words[0])
  if (verb === 'build') {
    const { problem, values, rest } = withoutFlags(words, [], ['-f', '-t'])
    const [file, tag] = ['-f', '-t'].map((flag) => values.find(([name]) => name === flag)?.[1] ?? '')
    if (!exists(file!)) return `there is no ${file}`
    return problem ?? image(tag) ?? (rest.join(' ') === '.' ? undefined : 'it builds something else than .')
  }
  if (verb !== 'run') return `no test knows docker ${verb}`
  const bare = ['--rm', '--read-only', '--detach', '-d', '--init', '-it']
  const { problem, values, rest } = withoutFlags(words, bare, [
    '--tmpfs',
    '--cap-drop',
    '-p',
    '-e',
    '--name',
    '--network',
  ])
  const unknown = values.filter(([flag]) => flag === '-e').map(([, set]) => variable(set.split('=')[0]!))
  return problem ?? unknown.find(Boolean) ?? image(rest[0]) ?? roomful(rest[1])
}

/** An image of this version, in any registry. */
const image = (name: string | undefined): string | undefined =>
  name?.replace(/^.*\//, '') === `roomful:${manifest.version}`
    ? undefined
    : `the image is ${name}, and this version is roomful:${manifest.version}`

const COMPOSE_FLAGS: Readonly<Record<string, readonly string[]>> = {
  up: ['--build', '--wait', '--detach', '--no-deps'],
  exec: ['-T'],
  run: ['--rm', '--no-deps', '-T'],
  down: ['--volumes'],
  ...{ build: [], restart: [], logs: ['--follow'], config: ['--quiet'] },
}

function compose(words: readonly string[]): string | undefined {
  const { problem, values, rest } = withoutFlags(words, [], ['-f'])
  // A second file is the reader's own.
  const absent = values.map(([, file]) => file).find((file) => file.startsWith('deploy/') && !exists(file))
  const [verb = '', ...behind] = rest
  const flags = COMPOSE_FLAGS[verb]
  if (problem || absent || !flags)
    return problem ?? (absent ? `there is no ${absent}` : `no test knows compose ${verb}`)
  const { problem: unknown, rest: named } = withoutFlags(behind, flags)
  const in_one = verb === 'exec' || verb === 'run'
  const stranger = (in_one ? named.slice(0, 1) : named).find((name) => !services.includes(name))
  if (unknown || stranger) return unknown ?? `compose.yaml has no service ${stranger}`
  return in_one ? inContainer(named.slice(1)) : undefined
}

/** A command in a container: what Node is to run must be in the image. */
const inContainer = ([program, script = '', command]: readonly string[]): string | undefined =>
  program !== 'node'
    ? undefined
    : exists(script.replace(/^dist\//, '').replace(/\.js$/, '.ts'))
      ? roomful(command)
      : `there is no ${script} in the image`

function helm([verb, ...words]: readonly string[]): string | undefined {
  const taking = ['--namespace', '--values', '--set', '--timeout']
  const bare = ['--create-namespace', '--wait']
  const places = {
    install: ['game', 'deploy/helm/roomful'],
    upgrade: ['game', 'deploy/helm/roomful'],
    rollback: ['game'],
  }
  const expected = places[verb as keyof typeof places]
  if (!expected) return `no test knows helm ${verb}`
  const named = words.slice(0, expected.length)
  if (named.join(' ') !== expected.join(' '))
    return `helm ${verb} takes ${expected.join(' ')} here, not ${named.join(' ')}`
  const { problem, values, rest } = withoutFlags(words.slice(expected.length), bare, taking)
  const defaults = parse(read('deploy/helm/roomful/values.yaml')) as Record<string, unknown>
  for (const [, set] of values.filter(([flag]) => flag === '--set')) {
    const path = set.split('=')[0]!
    let value: unknown = defaults
    for (const name of path.split('.')) value = (value as Record<string, unknown> | undefined)?.[name]
    if (value === undefined) return `values.yaml has no ${path}`
  }
  return problem ?? (rest.length > 0 ? `helm ${verb} takes no ${rest.join(' ')}` : undefined)
}

function kubectl(words: readonly string[]): string | undefined {
  const { problem, rest } = withoutFlags(words, [], ['-n'])
  const [verb = '', ...named] = rest
  if (problem) return problem
  if (verb === 'create') {
    const literals = named.filter((word) => word.startsWith('--from-literal='))
    const keys = literals.map((word) => word.split('=')[1]!).sort()
    const wanted = ['control-api-tokens', 'internal-token', 'keyring-secret', 'node-redis-url', 'redis-url']
    const secret = read('deploy/helm/roomful/templates/secret.yaml')
    const unread = wanted.find((key) => !secret.includes(key))
    if (unread) return `the chart has no ${unread} in its Secret`
    return keys.join() === wanted.join()
      ? undefined
      : `the Secret has ${keys.join()}, and the chart reads ${wanted.join()}`
  }
  if (verb === 'get') {
    const metric = named.at(-1)!.split('/').at(-1)!
    return read('docs/reference.md').includes(`\`${metric}\``) ? undefined : `there is no metric ${metric}`
  }
  if (!['logs', 'port-forward', 'rollout', 'exec', 'delete', 'describe'].includes(verb))
    return `no test knows kubectl ${verb}`
  const stranger = named
    .filter((word) => word.includes('/') && !word.startsWith('dist/'))
    .map(workload)
    .find(Boolean)
  const separator = named.indexOf('--')
  return stranger ?? (separator < 0 ? undefined : inContainer(named.slice(separator + 1)))
}

/** An object of the chart, as `deployment/game-roomful-node`. */
function workload(name: string): string | undefined {
  const [, kind = '', component = ''] = /^(deployment|service)\/game-roomful-(\w+)$/.exec(name) ?? []
  const template = `deploy/helm/roomful/templates/${component}.yaml`
  const text = component && exists(template) ? read(template).toLowerCase() : ''
  return text.includes(`\nkind: ${kind}\n`) ? undefined : `the chart makes no ${name}`
}

function systemctl([verb = '', ...units]: readonly string[]): string | undefined {
  if (!['daemon-reload', 'enable', 'restart', 'status', 'reload'].includes(verb))
    return `no test knows systemctl ${verb}`
  return units
    .filter((unit) => unit !== '--now')
    .map(unitThatIsThere)
    .find(Boolean)
}

/** A unit of ours by its instance, all of ours by a pattern, or one of the programs beside them. */
function unitThatIsThere(unit: string): string | undefined {
  const file = `deploy/systemd/${unit.replace(/@.*/, '@')}.service`
  return unit === 'roomful-*' || unit === 'haproxy' || unit === 'redis-server' || exists(file)
    ? undefined
    : `there is no ${file}`
}

function npm([verb = '', ...words]: readonly string[]): string | undefined {
  if (verb === 'install') {
    const { problem, rest } = withoutFlags(words, ['--omit', '--ignore-scripts'], ['--prefix'])
    return (
      problem ?? (/^\.\/roomful-\d+\.\d+\.\d+\.tgz$/.test(rest.join(' ')) ? undefined : `it installs ${rest}`)
    )
  }
  if (verb === 'ci' || verb === 'pack') return undefined
  const [script = '', ...behind] = verb === 'run' ? words : [verb, ...words]
  const line = manifest.scripts[script]
  if (line === undefined) return `package.json has no script ${script}`
  const given = behind[0] === '--' ? behind.slice(1) : behind
  if (script === 'test')
    return given.map((path) => (exists(path) ? undefined : `there is no ${path}`)).find(Boolean)
  if (script === 'loadtest') {
    const asked = parseRun(given, SCENARIOS, {}, 2)
    return asked.kind === 'mistake' ? asked.message : undefined
  }
  const flags = given.filter((word) => word.startsWith('--') && word !== '--help')
  const folder = dirname(/[\w/-]+\.ts\b/.exec(line)?.[0] ?? '')
  return flags.filter((flag) => !takes(folder, flag.slice(2))).map((flag) => `${folder} knows no ${flag}`)[0]
}

/** Whether a program in a folder has an option of this name. */
const takes = (folder: string, option: string): boolean =>
  readdirSync(join(ROOT, folder))
    .filter((name) => /(?<!\.test)\.ts$/.test(name))
    .some((name) =>
      new RegExp(`--${option}\\b|\\b${option}: \\{ type:|'${option}'`).test(read(join(folder, name))),
    )

/** An address on this machine must be at a port that the page's readers have something on. */
function port(url: string): string | undefined {
  const at = /^(?:\w+:\/\/)?(?:127\.0\.0\.1|localhost):(\d+)/.exec(url)?.[1]
  const known = ['3000', '4000', '9100', '9101', '9102', '9103', '8080', '8404']
  return at === undefined || known.includes(at) ? undefined : `nothing of roomful is at port ${at}`
}
