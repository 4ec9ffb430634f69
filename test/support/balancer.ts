import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { haproxyAt, nginxAt, type Places } from '../../deploy/balancer/configuration.ts'
import { programOr } from './debian-package.ts'
import { until } from './redis-admin.ts'

/** The load balancers there are configurations for. */
export const BALANCERS = ['haproxy', 'nginx'] as const
export type BalancerKind = (typeof BALANCERS)[number]

/** A load balancer that runs the configuration of this repository, at other addresses. */
export interface Balancer {
  readonly ws_url: string
  readonly control_url: string
  readonly operations_url: string
  /** Its processes, those that it has started included. */
  pids(): Promise<number[]>
  /** Everything it has said. */
  output(): string
  close(): Promise<void>
}

const run = promisify(execFile)
const FOLDER = new URL('../../deploy/balancer/', import.meta.url)

/** The configuration file of a load balancer, with its servers at these places. */
export async function configurationOf(kind: BalancerKind, places: Places): Promise<string> {
  const text = await readFile(new URL(kind === 'haproxy' ? 'haproxy.cfg' : 'nginx.conf', FOLDER), 'utf8')
  return kind === 'haproxy' ? haproxyAt(text, places) : nginxAt(text, places)
}

/**
 * What a load balancer says of its configuration with every setting that is there for some (marked `#+`), and a certificate, switched on.
 * Rejects when it would not start with it.
 */
export async function checkWithEverything(kind: BalancerKind, places: Places): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), `roomful-${kind}-`))
  try {
    const [cert, key] = [join(folder, 'roomful.pem'), join(folder, 'roomful.key')]
    const subject = ['-subj', '/CN=localhost', '-days', '1']
    await run(programOr('openssl'), [
      'req',
      '-x509',
      '-newkey',
      'rsa:2048',
      '-nodes',
      ...subject,
      '-keyout',
      key,
      '-out',
      cert,
    ])
    // haproxy reads both from one file.
    if (kind === 'haproxy')
      await writeFile(cert, (await readFile(cert, 'utf8')) + (await readFile(key, 'utf8')))
    const text = await configurationOf(kind, places)
    const file = join(folder, 'configuration')
    const whole = text.replaceAll('#+ ', '').replaceAll(/\/etc\/(haproxy|nginx)\/certs\/(?= )/g, cert)
    await writeFile(file, whole.replaceAll('/etc/nginx/certs', folder).replace('/var/log/nginx', folder))
    const check = kind === 'haproxy' ? ['-c', '-f', file] : ['-t', ...WORDS.nginx(file, folder)]
    const { stdout, stderr } = await run(programOr(kind), check)
    return stdout + stderr
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** How each is started in the foreground, given its configuration file and a folder of its own. */
const WORDS: Readonly<Record<BalancerKind, (file: string, folder: string) => string[]>> = {
  haproxy: (file) => ['-db', '-f', file],
  nginx: (file, folder) => ['-e', 'stderr', '-c', file, '-g', `daemon off; pid ${folder}/nginx.pid;`],
}

/**
 * Starts a load balancer in front of servers that run; resolves once it lets requests through to control. `processes`: so many that share
 * its ports, for more connections than one may have file descriptors (haproxy; nginx has workers).
 */
export async function startBalancer(kind: BalancerKind, places: Places, processes = 1): Promise<Balancer> {
  const folder = await mkdtemp(join(tmpdir(), `roomful-${kind}-`))
  const file = join(folder, 'configuration')
  const text = await configurationOf(kind, places)
  await writeFile(file, text.replace('/var/log/nginx', folder))
  const program = programOr(kind)
  const balancers = Array.from({ length: processes }, () => launch(program, WORDS[kind](file, folder)))
  const urls = {
    ws_url: `ws://${places.websocket}`,
    control_url: `http://${places.control}`,
    operations_url: `http://${places.operations}`,
  }
  const output = (): string => balancers.map((balancer) => balancer.output()).join('')
  const close = async (): Promise<void> => {
    await Promise.all(balancers.map((balancer) => balancer.close()))
    await rm(folder, { recursive: true, force: true })
  }
  const ready = until(`${kind} lets requests through`, async () => {
    if (balancers.some(({ child }) => child.exitCode !== null)) throw new Error(output())
    return (await fetch(`${urls.control_url}/readyz`)).ok
  })
  await ready.catch(async (error: unknown) => {
    await close()
    throw error
  })
  const pids = async () => (await Promise.all(balancers.map(({ child }) => family(child.pid!)))).flat()
  return { ...urls, pids, output, close }
}

function launch(program: string, words: string[]) {
  const child = spawn(program, words, { stdio: ['ignore', 'pipe', 'pipe'] })
  // For a run that ends before whoever started it could see to its end. SIGTERM, so that workers end too.
  const onExit = () => void child.kill('SIGTERM')
  process.once('exit', onExit)
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk))
  return {
    child,
    output: () => output,
    async close() {
      process.off('exit', onExit)
      await end(child)
    },
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  await ended
}

/** A process and its children. */
async function family(pid: number): Promise<number[]> {
  const { stdout } = await run('ps', ['-A', '-o', 'pid=,ppid='])
  const all = stdout
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number))
  return [pid, ...all.filter(([, parent]) => parent === pid).map(([child]) => child!)]
}
