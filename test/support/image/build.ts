import { cp, mkdir, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { contextFiles } from './build-context.ts'
import { Container } from './container.ts'
import type { Stage, Step } from './dockerfile.ts'

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
