import { execFile, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { parseAllDocuments } from 'yaml'
import type { Environment, ReadFile } from '../../../shared/config.ts'
import { installPackages, mayInstall, programOr } from '../debian-package.ts'

const run = promisify(execFile)
const SOURCE = fileURLToPath(new URL('render.go', import.meta.url))
const GO_LIBRARIES = '/usr/share/gocode'
const LIBRARY_PACKAGES = {
  'github.com/Masterminds/sprig': 'golang-github-masterminds-sprig-dev',
  'sigs.k8s.io/yaml': 'golang-k8s-sigs-yaml-dev',
}

/** A Kubernetes object, as far as tests look at all of them alike. */
export interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: {
    readonly name: string
    readonly namespace?: string
    readonly labels?: Readonly<Record<string, string>>
    readonly annotations?: Readonly<Record<string, string>>
  }
  // biome-ignore lint/suspicious/noExplicitAny: each kind has a shape of its own, which Kubernetes' schemas check.
  readonly [part: string]: any
}

interface RenderOptions {
  /** What is set on top of the chart's own values. */
  readonly values?: object
  readonly name?: string
  readonly namespace?: string
  /** What is in the cluster already, by `v1/Secret/namespace/name`. */
  readonly cluster?: Readonly<Record<string, object>>
}

/** Why charts cannot be rendered on this machine; undefined when they can. */
export function whyNoHelmEngine(): string | undefined {
  const there =
    spawnSync('go', ['version']).status === 0 &&
    Object.keys(LIBRARY_PACKAGES).every((name) => existsSync(join(GO_LIBRARIES, 'src', name)))
  return there || mayInstall()
    ? undefined
    : `no Go with sprig, the engine of Helm (apt install golang-go ${Object.values(LIBRARY_PACKAGES).join(' ')})`
}

/** Renders charts with the engine of Helm, compiled from Debian's packages. */
export class HelmEngine {
  readonly #folder: string

  private constructor(folder: string) {
    this.#folder = folder
  }

  /** Builds it, after installing what is missing; `close` removes it. */
  static async build(): Promise<HelmEngine> {
    const missing = Object.entries(LIBRARY_PACKAGES).filter(
      ([name]) => !existsSync(join(GO_LIBRARIES, 'src', name)),
    )
    const go = programOr('go', 'golang-go')
    if (missing.length > 0) installPackages(missing.map(([, debianPackage]) => debianPackage))
    const folder = await mkdtemp(join(tmpdir(), 'roomful-helm-'))
    await run(go, ['build', '-o', join(folder, 'render'), SOURCE], {
      env: { ...process.env, GO111MODULE: 'off', GOPATH: GO_LIBRARIES, GOCACHE: join(folder, 'cache') },
    })
    return new HelmEngine(folder)
  }

  /** The text of each template by its path in the chart; throws with what Helm would say. */
  text(chart: string, options: RenderOptions = {}): Readonly<Record<string, string>> {
    const { values, name = 'game', namespace = 'play', cluster = {} } = options
    const { status, stdout, stderr } = spawnSync(join(this.#folder, 'render'), {
      input: JSON.stringify({
        Chart: chart,
        Values: [values ?? {}],
        Name: name,
        Namespace: namespace,
        Cluster: cluster,
      }),
      encoding: 'utf8',
    })
    if (status !== 0) throw new Error(stderr.trim())
    return JSON.parse(stdout)
  }

  /** Every object of the chart. Kubernetes reads YAML 1.1, where 0440 is octal. */
  manifests(chart: string, options: RenderOptions = {}): Manifest[] {
    return Object.entries(this.text(chart, options))
      .filter(([path]) => path.endsWith('.yaml'))
      .flatMap(([path, text]) =>
        parseAllDocuments(text, { version: '1.1', uniqueKeys: true }).map((document) => {
          if (document.errors.length > 0) throw new Error(`${path}: ${document.errors[0]!.message}`)
          return document.toJS() as Manifest | null
        }),
      )
      .filter((manifest) => manifest !== null)
  }

  async close(): Promise<void> {
    await rm(this.#folder, { recursive: true, force: true })
  }
}

const root = fileURLToPath(new URL('../../..', import.meta.url))

/** The packages with the models of an API group. */
const packageOf = (group: string): string =>
  group === 'monitoring.coreos.com' ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models'

/** Holds an object to the OpenAPI schema of its kind; throws with the path of what is wrong. Unknown fields pass: `unknownFields` finds those. */
export async function validateManifest(manifest: Manifest): Promise<void> {
  const { apiVersion, kind, metadata } = manifest
  const models = await import(`${packageOf(apiVersion.split('/')[0]!)}/${apiVersion}`)
  const Model = models[kind]
  if (Model === undefined) throw new Error(`Kubernetes has no ${apiVersion} ${kind}`)
  try {
    new Model(manifest).validate()
  } catch (error) {
    throw new Error(`${kind} ${metadata.name}: ${(error as Error).message}`)
  }
}

/** What a strict API server would refuse: fields that a kind does not have. Each a line of the compiler; empty when there are none. */
export async function unknownFields(manifests: readonly Manifest[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-manifests-'))
  try {
    await symlink(join(root, 'node_modules'), join(folder, 'node_modules'), 'junction')
    const files = manifests.map((manifest, at): [string, string] => {
      const { apiVersion, kind } = manifest
      const from = `${packageOf(apiVersion.split('/')[0]!)}/${apiVersion}`
      const literal = JSON.stringify(manifest, null, 1)
      return [
        `${at}-${kind}.ts`,
        `import type { I${kind} } from '${from}'\nexport const it: I${kind} = ${literal}\n`,
      ]
    })
    for (const [name, text] of files) await writeFile(join(folder, name), text)
    const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'NodeNext', '--types', '']
    const compiler = join(root, 'node_modules/typescript/bin/tsc')
    const names = files.map(([name]) => name)
    const { stdout } = await run(process.execPath, [compiler, ...options, ...names], { cwd: folder }).catch(
      (error: { stdout: string }) => error,
    )
    return stdout
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

interface Mount {
  readonly name: string
  readonly mountPath: string
}

interface Variable {
  readonly name: string
  readonly value?: string
  readonly valueFrom?: { readonly fieldRef: { readonly fieldPath: string } }
}

interface Volume {
  readonly name: string
  readonly secret?: { readonly secretName: string; readonly items: readonly { key: string; path: string }[] }
}

/** What a container of a Deployment would find in its pod. */
interface PodView {
  readonly env: Environment
  /** Reads the files of Secrets that are mounted; throws for every other path. */
  readonly readFile: ReadFile
}

/** The environment and the files of a Deployment's only container, started from an image with these variables. */
export function podView(deployment: Manifest, imageEnv: Environment, secrets: readonly Manifest[]): PodView {
  const { containers, volumes } = deployment.spec.template.spec
  const [container] = containers
  const fields: Record<string, string> = {
    'metadata.name': `${deployment.metadata.name}-5d8f`,
    'status.podIP': '10.1.2.3',
  }
  const own: Record<string, string> = {}
  for (const { name, value, valueFrom } of container.env as Variable[])
    own[name] =
      value?.replace(/\$\(([A-Z_]+)\)/g, (whole, before: string) => own[before] ?? whole) ??
      fields[valueFrom!.fieldRef.fieldPath]!
  const files = new Map<string, string>()
  for (const { name, mountPath } of container.volumeMounts as Mount[]) {
    const volume = (volumes as Volume[]).find((one) => one.name === name)
    if (volume === undefined)
      throw new Error(`${name} is mounted at ${mountPath}, but is no volume of the pod`)
    for (const { key, path } of volume.secret?.items ?? []) {
      const secret = secrets.find(({ metadata }) => metadata.name === volume.secret!.secretName)
      const data = secret?.data[key]
      if (data === undefined) throw new Error(`the Secret ${volume.secret!.secretName} has no ${key}`)
      files.set(`${mountPath}/${path}`, Buffer.from(data, 'base64').toString())
    }
  }
  return {
    env: { ...imageEnv, ...own },
    readFile: (path) => {
      const text = files.get(path)
      if (text === undefined) throw new Error(`nothing is mounted at ${path}`)
      return text
    },
  }
}
