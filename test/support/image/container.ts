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

/** Returns the reason why this machine cannot run a `Container`. Undefined: it can. */
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
  /** Folder that becomes the root of the file system. */
  readonly root: string
  readonly writable: boolean
  /** Folder of this machine that is mounted at the same path, writable. */
  readonly shared?: string
  /** `uid:gid`. */
  readonly user: string
  readonly workdir: string
  readonly env: Readonly<Record<string, string>>
  readonly words: readonly string[]
}

/** PATH inside. Node is first, because this machine may have it anywhere below /usr. */
const PATH = [
  dirname(process.execPath),
  '/usr/local/sbin',
  '/usr/local/bin',
  '/usr/sbin',
  '/usr/bin',
  '/sbin',
  '/bin',
].join(':')

/** Process 1 in a new root and PID namespace, with the network of this machine. */
export class Container {
  readonly #outer: ChildProcess
  readonly #options: ContainerOptions
  #output = ''
  readonly #waiting = new Set<() => void>()
  /** Resolves with the exit code. Null: a signal ended the process. */
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

  /** All output of the process. */
  output(): string {
    return this.#output
  }

  /** Resolves when the output matches. Rejects if the process ends before. */
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

  /** Returns the id of process 1 outside its namespace. Throws if it has ended. */
  #pid(): number {
    const { pid } = this.#outer
    const child = Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim())
    if (child === 0) throw new Error(`process 1 has ended: ${this.#output}`)
    return child
  }

  /** Sends a signal to process 1, like `docker stop`. */
  signal(signal: NodeJS.Signals): void {
    process.kill(this.#pid(), signal)
  }

  /** Returns a field of `/proc/<pid>/status` of process 1, such as `Uid`, `CapEff` or `NoNewPrivs`. */
  status(field: string): string {
    const line = readFileSync(`/proc/${this.#pid()}/status`, 'utf8').match(
      new RegExp(`^${field}:\\s*(.*)$`, 'm'),
    )
    return line?.[1] ?? ''
  }

  /** Runs a command inside with the same user and environment, like `docker exec`. */
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

  /** Kills the process if it has not ended. */
  kill(): void {
    try {
      // Process 1 survives the outer process: the change of its user has cleared the signal of --kill-child.
      this.signal('SIGKILL')
    } catch {
      // Process 1 has ended.
    }
    this.#outer.kill('SIGKILL')
  }
}

/** Variables of the machine that downloads may need: proxies, certificates and settings of npm. */
const MACHINE_VARIABLES =
  /^((https?|no)_proxy|npm_config_(registry|cache|userconfig|globalconfig|cafile)|NODE_EXTRA_CA_CERTS|SSL_CERT_(FILE|DIR))$/i

/**
 * Runs the stages of a Dockerfile, each in its folder below `folder`. Copies files from the build context of a clean clone, and runs commands
 * as root with the folder of the stage as their root. Resolves with the folder of the last stage.
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
    // npm takes earlier downloads from its cache and sends no request for them.
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

/** Copies like COPY: the content of a folder, or a file into a folder or with a new name. */
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
  /** True for a line with `!`: matching files stay in the context. */
  readonly keep: boolean
}

/** Reads a `.dockerignore`. The last line that matches a path, or a folder of it, decides. */
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

/** Translates a pattern of Go's filepath.Match, with `**` for any number of folders. */
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

/** Returns the files of the build context at `root`: files that neither git nor `.dockerignore` ignores. */
export function contextFiles(root: string): string[] {
  const ignored = ignoredBy(readFileSync(join(root, '.dockerignore'), 'utf8'))
  const list = ['ls-files', '-z', '--cached', '--others', '--exclude-standard', '--deduplicate']
  const known = execFileSync('git', list, { cwd: root, encoding: 'utf8', maxBuffer: 1 << 26 })
  return known.split('\0').filter((path) => path !== '' && !ignored(path) && existsSync(join(root, path)))
}

/** One step of a stage. */
export type Step =
  | { readonly kind: 'workdir'; readonly path: string }
  | {
      readonly kind: 'copy'
      /** Source stage. Undefined: the build context. */
      readonly from: string | undefined
      readonly sources: readonly string[]
      readonly target: string
    }
  | { readonly kind: 'run'; readonly command: string; readonly env: Readonly<Record<string, string>> }

/** One `FROM` and its instructions. */
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
  /** Arguments of the exec form. Undefined: the shell form, or no such instruction. */
  readonly entrypoint: readonly string[] | undefined
  readonly cmd: readonly string[] | undefined
  readonly healthcheck: HealthcheckOf | undefined
}

interface HealthcheckOf {
  readonly words: readonly string[]
  /** Texts of `interval`, `timeout`, `start-period` and `retries`. */
  readonly options: Readonly<Record<string, string>>
}

const DOCKERFILE = new URL('../../../deploy/image/Dockerfile', import.meta.url)

/** Reads the Dockerfile of this repository. `final`: the last stage, which is the image. */
export function readImage(): {
  readonly text: string
  readonly stages: readonly Stage[]
  readonly final: Stage
} {
  const text = readFileSync(DOCKERFILE, 'utf8')
  const stages = parseStages(text)
  return { text, stages, final: stages.at(-1)! }
}

/** Parses a Dockerfile. Throws at an unknown instruction. */
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
      // These builds have no --build-arg, so the argument is empty.
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
      throw new Error(`${keyword}: parseStages does not know this instruction; add it`)
  }
}

const properties = (instruction: Env): Record<string, string> =>
  Object.fromEntries(instruction.getProperties().map((one) => [one.getName(), one.getValue() ?? '']))

/** Returns the arguments of the exec form. Undefined for the shell form. */
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
