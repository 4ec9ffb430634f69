import { execFile, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { parseAllDocuments } from 'yaml'
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
