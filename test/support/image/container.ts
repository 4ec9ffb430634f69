import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { cp, mkdir, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import {
  type Copy,
  DockerfileParser,
  type Env,
  type From,
  type Healthcheck,
  type Instruction,
} from 'dockerfile-ast'

const run = promisify(execFile)
const ENTER = fileURLToPath(new URL('enter-root.sh', import.meta.url))
const UNSHARE = ['--mount', '--pid', '--fork', '--kill-child']

/** Why containers cannot be made by hand on this machine; undefined when they can. */
export function whyNoContainers(): string | undefined {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'this is not Linux as root'
  const probe = spawnSync('unshare', [
    ...UNSHARE,
    'sh',
    '-c',
    'mount --make-rprivate / && mount -t tmpfs tmpfs /mnt',
  ])
  return probe.status === 0 ? undefined : 'this machine allows no namespaces or mounts'
}

interface ContainerOptions {
  /** The folder that is its root. */
  readonly root: string
  readonly writable: boolean
  /** A folder of this machine that is there at the same path, writable. */
  readonly shared?: string
  /** `uid:gid`. */
  readonly user: string
  readonly workdir: string
  readonly env: Readonly<Record<string, string>>
  readonly words: readonly string[]
}

/** Where programs are found inside: Node first, wherever this machine has it below /usr. */
const PATH = [
  dirname(process.execPath),
  '/usr/local/sbin',
  '/usr/local/bin',
  '/usr/sbin',
  '/usr/bin',
  '/sbin',
  '/bin',
].join(':')

/** A process that is number 1 in a root of its own, on the network of this machine. */
export class Container {
  readonly #outer: ChildProcess
  readonly #options: ContainerOptions
  #output = ''
  readonly #waiting = new Set<() => void>()
  /** Its exit code; null when a signal ended it. */
  readonly ended: Promise<number | null>

  constructor(options: ContainerOptions) {
    this.#options = options
    const { root, writable, shared = '-', user, workdir, env, words } = options
    const enter = ['sh', ENTER, root, writable ? 'rw' : 'ro', shared, user, workdir, ...words]
    this.#outer = spawn('unshare', [...UNSHARE, ...enter], { env: { PATH, ...env } })
    this.ended = new Promise((resolve) => this.#outer.once('close', (code) => resolve(code)))
    for (const stream of [this.#outer.stdout!, this.#outer.stderr!])
      stream.on('data', (chunk: Buffer) => {
        this.#output += chunk
        for (const look of this.#waiting) look()
      })
  }

  /** Everything it has said. */
  output(): string {
    return this.#output
  }

  /** Resolves when its output has matched; rejects when it ends before. */
  said(pattern: RegExp): Promise<RegExpMatchArray> {
    return new Promise((resolve, reject) => {
      const look = (): void => {
        const match = this.#output.match(pattern)
        if (match) resolve(match)
      }
      this.#waiting.add(look)
      look()
      void this.ended.then((code) =>
        reject(new Error(`it ended with ${code}, without ${pattern}: ${this.#output}`)),
      )
    })
  }

  /** Its process 1, by the number it has outside. Throws when it has ended. */
  #pid(): number {
    const { pid } = this.#outer
    const child = Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim())
    if (child === 0) throw new Error(`process 1 has ended: ${this.#output}`)
    return child
  }

  /** Sends process 1 a signal, as `docker stop` does. */
  signal(signal: NodeJS.Signals): void {
    process.kill(this.#pid(), signal)
  }

  /** What /proc says of process 1: `Uid`, `CapEff`, `NoNewPrivs` and the like. */
  status(field: string): string {
    const line = readFileSync(`/proc/${this.#pid()}/status`, 'utf8').match(
      new RegExp(`^${field}:\\s*(.*)$`, 'm'),
    )
    return line?.[1] ?? ''
  }

  /** Runs a command inside, as `docker exec` does, with the same user and environment. */
  async exec(words: readonly string[]): Promise<{ code: number; output: string }> {
    const { user, env } = this.#options
    const [uid, gid] = user.split(':')
    const enter = ['--target', String(this.#pid()), '--mount', '--pid', '--root', '--wd']
    const become = ['setpriv', '--reuid', uid!, '--regid', gid!, '--clear-groups', ...words]
    try {
      const { stdout, stderr } = await run('nsenter', [...enter, ...become], { env: { PATH, ...env } })
      return { code: 0, output: stdout + stderr }
    } catch (error) {
      const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string }
      return { code, output: stdout + stderr }
    }
  }

  /** Ends it at once, if it has not ended. */
  kill(): void {
    try {
      // It survives the outer process: with the change of its user it has lost the signal that --kill-child had ordered.
      this.signal('SIGKILL')
    } catch {
      // It has ended.
    }
    this.#outer.kill('SIGKILL')
  }
}

/** What a download may need that belongs to the machine: proxies, certificates, npm's own settings. */
const MACHINE_VARIABLES =
  /^((https?|no)_proxy|npm_config_(registry|cache|userconfig|globalconfig|cafile)|NODE_EXTRA_CA_CERTS|SSL_CERT_(FILE|DIR))$/i

/**
 * Does what the stages of a Dockerfile say, each in a folder of its own below `folder`: files are copied from a clean clone's build
 * context, and commands run as root with that folder as their root. Resolves with the folder of the last stage.
 */
export async function buildStages(
  stages: readonly Stage[],
  context: string,
  folder: string,
): Promise<string> {
  const roots = new Map<string, string>()
  let root = folder
  for (const [at, stage] of stages.entries()) {
    root = join(folder, stage.name ?? `stage-${at}`)
    await mkdir(root, { recursive: true })
    let workdir = '/'
    for (const step of stage.steps) {
      if (step.kind === 'workdir') {
        workdir = resolve(workdir, step.path)
        await mkdir(join(root, workdir), { recursive: true })
      } else if (step.kind === 'run') await perform(step, root, workdir)
      else if (step.from === undefined)
        await copyContext(step, context, join(root, resolve(workdir, step.target)))
      else await copyStage(step, roots.get(step.from), join(root, resolve(workdir, step.target)))
    }
    if (stage.name !== undefined) roots.set(stage.name, root)
  }
  return root
}

type Run = Extract<Step, { kind: 'run' }>
type Copying = Extract<Step, { kind: 'copy' }>

async function perform({ command, env }: Run, root: string, workdir: string): Promise<void> {
  const machine = Object.entries(process.env).filter(([name]) => MACHINE_VARIABLES.test(name)) as [
    string,
    string,
  ][]
  const container = new Container({
    root,
    writable: true,
    shared: homedir(),
    user: '0:0',
    workdir,
    // What npm has downloaded before is taken from its cache, unasked.
    env: { ...Object.fromEntries(machine), npm_config_prefer_offline: 'true', HOME: homedir(), ...env },
    words: ['/bin/sh', '-c', command],
  })
  const code = await container.ended
  if (code !== 0) throw new Error(`RUN ${command} ended with ${code}: ${container.output()}`)
}

async function copyContext({ sources }: Copying, context: string, target: string): Promise<void> {
  const files = contextFiles(context)
  for (const source of sources) {
    const chosen =
      source === '.' ? files : files.filter((file) => file === source || file.startsWith(`${source}/`))
    if (chosen.length === 0) throw new Error(`COPY ${source}: the build context has no such file`)
    for (const file of chosen) {
      await mkdir(dirname(join(target, file)), { recursive: true })
      await cp(join(context, file), join(target, file), { verbatimSymlinks: true })
    }
  }
}

/** A folder's content is copied, a file into a folder or under a new name: as COPY does. */
async function copyStage(
  { sources, from }: Copying,
  root: string | undefined,
  target: string,
): Promise<void> {
  if (root === undefined) throw new Error(`COPY --from=${from}: there is no such stage before`)
  for (const source of sources) {
    const file = join(root, source)
    const isFolder = (await stat(file)).isDirectory()
    const place = isFolder || sources.length === 1 ? target : join(target, basename(source))
    await cp(file, place, { recursive: true, verbatimSymlinks: true })
  }
}

interface Rule {
  readonly pattern: RegExp
  /** A line with `!`: what it matches is in the context after all. */
  readonly keep: boolean
}

/** Reads a `.dockerignore`: of the lines that match a path, or a folder it is in, the last decides. */
export function ignoredBy(text: string): (path: string) => boolean {
  const rules: Rule[] = text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => ({ keep: line.startsWith('!'), pattern: glob(line.replace(/^!/, '')) }))
  return (path) => {
    const parts = path.split('/')
    const paths = parts.map((_, at) => parts.slice(0, at + 1).join('/'))
    const last = rules.findLast(({ pattern }) => paths.some((one) => pattern.test(one)))
    return last !== undefined && !last.keep
  }
}

/** Patterns of Go's filepath.Match, and `**` for any number of folders. */
function glob(pattern: string): RegExp {
  const source = pattern
    .replace(/^\/|\/$/g, '')
    .replace(/[.+^${}()|\\]/g, '\\$&')
    .replaceAll('**/', '\0')
    .replaceAll('**', '\x01')
    .replaceAll('*', '[^/]*')
    .replaceAll('?', '[^/]')
    .replaceAll('\0', '(.*/)?')
    .replaceAll('\x01', '.*')
  return new RegExp(`^${source}$`)
}

/** The files under `root` that a build would be sent: those that are not ignored, neither by git nor by `.dockerignore`. */
export function contextFiles(root: string): string[] {
  const ignored = ignoredBy(readFileSync(join(root, '.dockerignore'), 'utf8'))
  const list = ['ls-files', '-z', '--cached', '--others', '--exclude-standard', '--deduplicate']
  const known = execFileSync('git', list, { cwd: root, encoding: 'utf8', maxBuffer: 1 << 26 })
  return known.split('\0').filter((path) => path !== '' && !ignored(path) && existsSync(join(root, path)))
}

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
