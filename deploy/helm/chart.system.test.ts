import { execFile, spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import * as v from 'valibot'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { webhookSecrets } from '../../shared/config/kinds.ts'
import { variables } from '../../shared/config/variables.ts'
import type { Environment, ReadFile } from '../../shared/config.ts'
import { parseConfig } from '../../shared/config.ts'
import { installPackages, mayInstall, programOr } from '../../test/support/debian-package.ts'
import { readImage } from '../../test/support/image/container.ts'

const run = promisify(execFile)
const SOURCE = fileURLToPath(new URL('../../test/support/helm-render.go', import.meta.url))
const GO_LIBRARIES = '/usr/share/gocode'
const LIBRARY_PACKAGES = {
  'github.com/Masterminds/sprig': 'golang-github-masterminds-sprig-dev',
  'sigs.k8s.io/yaml': 'golang-k8s-sigs-yaml-dev',
}

/** A Kubernetes object, with the fields that all kinds have. */
interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: {
    readonly name: string
    readonly namespace?: string
    readonly labels?: Readonly<Record<string, string>>
    readonly annotations?: Readonly<Record<string, string>>
  }
  // biome-ignore lint/suspicious/noExplicitAny: each kind has another shape, which Kubernetes' schemas check.
  readonly [part: string]: any
}

interface RenderOptions {
  /** Values that override those of the chart. */
  readonly values?: object
  readonly name?: string
  readonly namespace?: string
  /** Existing objects of the cluster, by `v1/Secret/namespace/name`. */
  readonly cluster?: Readonly<Record<string, object>>
}

/** Returns the reason why this machine cannot render charts. Undefined: it can. */
function whyNoHelmEngine(): string | undefined {
  const there =
    spawnSync('go', ['version']).status === 0 &&
    Object.keys(LIBRARY_PACKAGES).every((name) => existsSync(join(GO_LIBRARIES, 'src', name)))
  return there || mayInstall()
    ? undefined
    : `no Go with sprig, the engine of Helm (apt install golang-go ${Object.values(LIBRARY_PACKAGES).join(' ')})`
}

/** Renders charts with the template engine of Helm, compiled from Debian's packages. */
class HelmEngine {
  readonly #folder: string

  private constructor(folder: string) {
    this.#folder = folder
  }

  /** Installs missing packages, and builds the engine. `close` removes it. */
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

  /** Returns the text of each template by its path in the chart. Throws with the error of the template engine. */
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

  /** Returns all objects of the chart. Kubernetes reads YAML 1.1, where 0440 is octal. */
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

/** Returns the package with the models of an API group. */
const packageOf = (group: string): string =>
  group === 'monitoring.coreos.com' ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models'

/** Checks an object against the OpenAPI schema of its kind. Throws with the path of a mistake. `unknownFields` finds unknown fields. */
async function validateManifest(manifest: Manifest): Promise<void> {
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

/** Returns the compiler's errors for fields that a kind does not have. A strict API server would refuse them. Empty: none. */
async function unknownFields(manifests: readonly Manifest[]): Promise<string> {
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

/** View of a Deployment's container. */
interface PodView {
  readonly env: Environment
  /** Reads the files of mounted Secrets. Throws for every other path. */
  readonly readFile: ReadFile
}

/** Returns the environment and the files of a Deployment's only container. `imageEnv`: variables of the image. */
function podView(deployment: Manifest, imageEnv: Environment, secrets: readonly Manifest[]): PodView {
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
      throw new Error(`${name} is mounted at ${mountPath}, but the pod has no such volume`)
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

const CHART = fileURLToPath(new URL('roomful', import.meta.url))
const read = (path: string): string => readFileSync(new URL(path, import.meta.url), 'utf8')
const example = (name: string) => parse(read(`examples/${name}.yaml`))

/** All examples of values, and the Secret that one of them expects. */
const EXAMPLES = ['smallest', 'production', 'own-secret'] as const
const OWN_SECRET: Manifest = {
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name: 'roomful-secrets' },
  data: Object.fromEntries(
    Object.entries({
      'redis-url': 'rediss://roomful-control:s3cret@redis.example.com:6380',
      'node-redis-url': 'rediss://roomful-node:s3cret@redis.example.com:6380',
      'internal-token': 'internal-token-of-somebody',
      'notify-secret': `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
      'keyring-secret': 'keyring-secret-of-somebody',
      'control-api-tokens': 'operator-token-of-somebody',
    }).map(([key, value]) => [key, Buffer.from(value).toString('base64')]),
  ),
}

/** Returns true if a selector picks these labels. */
const picks = (selector: Record<string, string>, labels: Record<string, string> = {}) =>
  Object.entries(selector).every(([name, value]) => labels[name] === value)

const missing = whyNoHelmEngine()
if (missing) process.stderr.write(`skipped: the chart is not rendered, there is ${missing}\n`)

describe.skipIf(missing !== undefined)('the chart', () => {
  let helm: HelmEngine
  beforeAll(async () => {
    helm = await HelmEngine.build()
  })
  afterAll(() => helm?.close())

  const render = (values: object) => helm.manifests(CHART, { values })
  const of = (manifests: readonly Manifest[], kind: string, ending = '') =>
    manifests.filter((one) => one.kind === kind && one.metadata.name.endsWith(ending))
  const one = (manifests: readonly Manifest[], kind: string, ending = ''): Manifest => {
    const found = of(manifests, kind, ending)
    if (found.length !== 1) throw new Error(`there are ${found.length} ${kind} …${ending}`)
    return found[0]!
  }

  describe.each(EXAMPLES)('with the values of examples/%s.yaml', (name) => {
    let manifests: Manifest[]
    beforeAll(() => {
      manifests = render(example(name))
    })

    it('is valid for Kubernetes: known kinds, known fields, correct types, unique names', async () => {
      for (const manifest of manifests) await validateManifest(manifest)
      expect(await unknownFields(manifests)).toBe('')
      const names = manifests.map(({ kind, metadata }) => `${kind} ${metadata.name}`)
      expect(new Set(names).size).toBe(names.length)
      for (const { metadata } of manifests) {
        expect(metadata.namespace).toBe('play')
        expect(metadata.name).toMatch(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/)
      }
    })

    it('has selectors that pick the intended pods, and no others', () => {
      const pods = of(manifests, 'Deployment').map(({ metadata, spec }) => ({
        name: metadata.name,
        labels: spec.template.metadata.labels,
      }))
      const picked = (selector: Record<string, string>) =>
        pods.filter(({ labels }) => picks(selector, labels)).map((pod) => pod.name)
      for (const { metadata, spec } of of(manifests, 'Deployment'))
        expect(picked(spec.selector.matchLabels)).toEqual([metadata.name])
      for (const { metadata, spec } of [...of(manifests, 'Service'), ...of(manifests, 'PodDisruptionBudget')])
        expect(picked(spec.selector.matchLabels ?? spec.selector)).toEqual([
          metadata.name.replace(/-admin$/, ''),
        ])
      for (const { metadata, spec } of of(manifests, 'NetworkPolicy'))
        expect(picked(spec.podSelector.matchLabels)).toEqual([metadata.name])
      for (const { spec } of of(manifests, 'Deployment'))
        for (const { labelSelector } of spec.template.spec.topologySpreadConstraints)
          expect(labelSelector.matchLabels).toEqual(spec.selector.matchLabels)
    })

    it('names existing ports', () => {
      const ports = (deployment: Manifest): string[] =>
        deployment.spec.template.spec.containers[0].ports.map(({ name: port }: { name: string }) => port)
      for (const deployment of of(manifests, 'Deployment')) {
        const [container] = deployment.spec.template.spec.containers
        for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'])
          expect(ports(deployment)).toContain(container[probe].httpGet.port)
      }
      const behind = (selector: Record<string, string>) =>
        of(manifests, 'Deployment').find(({ spec }) => picks(selector, spec.template.metadata.labels))!
      for (const { spec } of of(manifests, 'Service'))
        for (const { targetPort } of spec.ports) expect(ports(behind(spec.selector))).toContain(targetPort)
      for (const { spec } of of(manifests, 'NetworkPolicy'))
        for (const { ports: allowed } of spec.ingress)
          for (const { port } of allowed) expect(ports(behind(spec.podSelector.matchLabels))).toContain(port)
      for (const { spec } of of(manifests, 'Ingress'))
        for (const { http } of spec.rules) {
          const { service } = http.paths[0].backend
          const names = one(manifests, 'Service', service.name).spec.ports.map(
            (port: { name: string }) => port.name,
          )
          expect(names).toContain(service.port.name)
        }
      for (const { spec } of of(manifests, 'ServiceMonitor')) {
        const services = of(manifests, 'Service').filter(({ metadata }) =>
          picks(spec.selector.matchLabels, metadata.labels),
        )
        const matching = services.filter((service) =>
          service.spec.ports.some(({ name: port }: { name: string }) => port === spec.endpoints[0].port),
        )
        expect(matching.map(({ metadata }) => metadata.labels![spec.jobLabel])).toEqual([
          expect.stringMatching(/^roomful-(control|node)$/),
        ])
      }
    })

    it('has a liveness probe that does not depend on Redis, and a readiness probe that does', () => {
      for (const { spec } of of(manifests, 'Deployment')) {
        const [{ startupProbe, livenessProbe, readinessProbe }] = spec.template.spec.containers
        expect([startupProbe, livenessProbe, readinessProbe].map((probe) => probe.httpGet.path)).toEqual([
          '/healthz',
          '/healthz',
          '/readyz',
        ])
      }
    })

    it('gives each plane a valid configuration, without a warning', () => {
      const secrets = [...of(manifests, 'Secret'), OWN_SECRET]
      const imageEnv = readImage().final.env
      const control = podView(one(manifests, 'Deployment', '-control'), imageEnv, secrets)
      const node = podView(one(manifests, 'Deployment', '-node'), imageEnv, secrets)
      const parsed = {
        control: parseConfig('control', control.env, control.readFile),
        node: parseConfig('dataplane', node.env, node.readFile),
      }
      if (!parsed.control.ok || !parsed.node.ok) throw new Error(JSON.stringify(parsed))
      expect([...parsed.control.warnings, ...parsed.node.warnings]).toEqual([])
      const [controlConfig, nodeConfig] = [parsed.control.config, parsed.node.config]
      expect(controlConfig.controlApiTokens).toHaveLength(1)
      expect(controlConfig.keyringSecret!.length).toBeGreaterThanOrEqual(16)
      expect(nodeConfig.internalToken).toBe(controlConfig.internalToken)
      // The same Redis, with a separate user for each plane, or one user for both.
      const store = new URL(controlConfig.redisUrl)
      if (store.password !== '') store.username = 'roomful-node'
      expect(nodeConfig).toMatchObject({ keyPrefix: controlConfig.keyPrefix, redisUrl: store.href })
      // Kubernetes has the ports on which the processes listen.
      const listed = (ending: string) =>
        one(manifests, 'Deployment', ending).spec.template.spec.containers[0].ports.map(
          (port: { containerPort: number }) => port.containerPort,
        )
      expect(listed('-control')).toEqual([controlConfig.controlPort])
      expect(listed('-node')).toEqual([nodeConfig.wsPort, nodeConfig.adminPort])
      expect(nodeConfig.adminUrl).toBe(`http://10.1.2.3:${nodeConfig.adminPort}`)
      // CONTROL_URL is the Service of control.
      const service = one(manifests, 'Service', '-control')
      expect(nodeConfig.controlUrl).toBe(
        `http://${service.metadata.name}.play.svc:${service.spec.ports[0].port}`,
      )
    })

    it('gives nodes, which run the code of games, no secret that only control needs', () => {
      const keys = (ending: string) =>
        one(manifests, 'Deployment', ending).spec.template.spec.volumes.flatMap(
          ({ secret }: { secret?: { items: { key: string }[] } }) =>
            secret?.items.map(({ key }) => key) ?? [],
        )
      expect(keys('-node').sort()).toEqual(['internal-token', 'node-redis-url', 'notify-secret'])
      expect(keys('-control').sort()).toEqual([
        'control-api-tokens',
        'internal-token',
        'keyring-secret',
        'notify-secret',
        'redis-url',
      ])
    })

    it('gives a node enough time for its drain, and drains one node at a time', () => {
      const { spec } = one(manifests, 'Deployment', '-node')
      const [container] = spec.template.spec.containers
      const drain = Number(
        container.env.find((entry: { name: string }) => entry.name === 'DRAIN_SECONDS').value,
      )
      const wait = Number(container.lifecycle.preStop.exec.command[1])
      expect(spec.template.spec.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(drain + wait + 15)
      expect(spec.minReadySeconds).toBeGreaterThanOrEqual(drain + wait)
      expect(spec.strategy.rollingUpdate).toEqual({ maxUnavailable: 0, maxSurge: 1 })
    })

    it('meets the restricted Pod Security Standard', () => {
      for (const { spec } of of(manifests, 'Deployment')) {
        const pod = spec.template.spec
        expect(pod.securityContext).toMatchObject({
          runAsNonRoot: true,
          seccompProfile: { type: 'RuntimeDefault' },
        })
        expect(`${pod.securityContext.runAsUser}:${pod.securityContext.runAsGroup}`).toBe(
          readImage().final.user,
        )
        for (const key of ['hostNetwork', 'hostPID', 'hostIPC']) expect(pod[key]).toBeUndefined()
        expect(pod.automountServiceAccountToken).toBe(false)
        expect(pod.enableServiceLinks).toBe(false)
        for (const volume of pod.volumes)
          expect(Object.keys(volume).filter((key) => key !== 'name')).toEqual([
            expect.stringMatching(/^(secret|emptyDir)$/),
          ])
        for (const { securityContext, resources } of pod.containers) {
          expect(securityContext).toEqual({
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ['ALL'] },
          })
          expect(resources.limits.memory).toBeDefined()
        }
      }
    })
  })

  it('scales nodes by their sessions and their event loop, with existing metrics', () => {
    const manifests = render(example('production'))
    const { spec } = one(manifests, 'HorizontalPodAutoscaler')
    const deployment = one(manifests, 'Deployment', '-node')
    expect(spec.scaleTargetRef).toEqual({
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      name: deployment.metadata.name,
    })
    expect(deployment.spec.replicas).toBeUndefined()
    const running = { spec: { replicas: 7 } }
    const cluster = { 'apps/v1/Deployment/play/game-roomful-node': running }
    const upgraded = helm.manifests(CHART, { values: example('production'), cluster })
    expect(one(upgraded, 'Deployment', '-node').spec.replicas).toBe(7)
    const targets = spec.metrics.map(({ pods }: { pods: { metric: { name: string }; target: object } }) => [
      pods.metric.name,
      pods.target,
    ])
    expect(targets).toEqual([
      ['service_sessions', { type: 'AverageValue', averageValue: '7000' }],
      ['service_event_loop_utilisation_ratio', { type: 'AverageValue', averageValue: '600m' }],
    ])
    const reference = read('../../docs/reference.md')
    // The page marks histograms, and the names of counters end with _total.
    for (const [metric] of targets) expect(reference).toContain(`\n- \`${metric}\`: `)
    // README.md configures prometheus-adapter for the same two.
    for (const [metric] of targets) expect(read('README.md')).toContain(metric)
  })

  it('keeps its generated secrets in an upgrade, and accepts a new address of Redis', () => {
    const first = one(render(example('smallest')), 'Secret')
    expect(first.metadata.annotations).toMatchObject({ 'helm.sh/resource-policy': 'keep' })
    const cluster = { [`v1/Secret/play/${first.metadata.name}`]: first }
    const values = { redis: { url: 'redis://elsewhere:6379', nodeUrl: 'redis://node:s3cret@elsewhere:6379' } }
    const second = one(helm.manifests(CHART, { values, cluster }), 'Secret')
    const addresses = { 'redis-url': '', 'node-redis-url': '' }
    expect({ ...second.data, ...addresses }).toEqual({ ...first.data, ...addresses })
    const address = (key: string) => Buffer.from(second.data[key], 'base64').toString()
    expect(address('redis-url')).toBe(values.redis.url)
    expect(address('node-redis-url')).toBe(values.redis.nodeUrl)
    expect(first.data['node-redis-url']).toBe(first.data['redis-url'])
    const other = one(render(example('smallest')), 'Secret')
    for (const key of ['internal-token', 'keyring-secret', 'control-api-tokens']) {
      expect(other.data[key]).not.toBe(first.data[key])
      expect(Buffer.from(first.data[key], 'base64').toString()).toMatch(/^[A-Za-z0-9]{43}$/)
    }
    const notifySecret = Buffer.from(first.data['notify-secret'], 'base64').toString()
    expect(v.safeParse(webhookSecrets, notifySecret).success).toBe(true)
    expect(other.data['notify-secret']).not.toBe(first.data['notify-secret'])
  })

  it('accepts the first values of the README', () => {
    const [values] = [...read('README.md').matchAll(/^```yaml\n(.*?)^```/gms)].map(([, text]) => parse(text!))
    const { spec } = one(render(values), 'Deployment', '-node')
    expect(spec.template.spec.containers[0].image).toMatch(`${values.image.repository}:`)
  })

  it('has a README whose Secret names users and passwords of deploy/redis/users.acl', () => {
    const urls = [...read('README.md').matchAll(/(\S+)=redis:\/\/(.+?):(.+?)@/g)].map(([, key, ...rest]) => [
      key!.replace('--from-literal=', ''),
      ...rest,
    ])
    expect(urls).toEqual([
      ['redis-url', 'roomful-control', 'CONTROL_PASSWORD'],
      ['node-redis-url', 'roomful-node', 'NODE_PASSWORD'],
    ])
    for (const [, user, password] of urls)
      expect(read('../redis/users.acl')).toContain(`\nuser ${user} on >${password} `)
  })

  it('lets players connect to the ports of workers if these have separate addresses', () => {
    const portsOf = (env: object) =>
      one(
        render({ ...example('smallest'), networkPolicy: { enabled: true }, node: { workers: 3, env } }),
        'NetworkPolicy',
        '-node',
      ).spec.ingress[0].ports
    expect(portsOf({})).toEqual([{ port: 'websocket', protocol: 'TCP' }])
    expect(portsOf({ ADVERTISE_URL: 'wss://play.example.com/$(NODE_ID)' })).toEqual([
      { port: 'websocket', protocol: 'TCP' },
      { port: 4001, endPort: 4004, protocol: 'TCP' },
    ])
  })

  it('reports missing values', () => {
    expect(() => render({})).toThrow('redis.url is empty: set it')
    expect(() => render({ redis: { url: 'redis://r' }, control: { ingress: { enabled: true } } })).toThrow(
      'control.ingress.enabled needs control.ingress.host',
    )
  })

  it('contains the alerts and the dashboard of this repository', () => {
    const manifests = render(example('production'))
    const alerts = read('../prometheus/alerts.yml')
    const { runbooks } = example('production').monitoring.prometheusRule
    // Alerts for missing series are limited to this namespace, and links have a target.
    const here = alerts
      .replace('absent(service_node_info)', 'absent(service_node_info{namespace="play"})')
      .replace('absent(service_control_info)', 'absent(service_control_info{namespace="play"})')
    expect(here).not.toBe(alerts)
    expect(one(manifests, 'PrometheusRule').spec).toEqual(
      parse(here.replaceAll('docs/runbooks.md#', `${runbooks}#`)),
    )
    const plain = render({ ...example('smallest'), monitoring: { prometheusRule: { enabled: true } } })
    expect(one(plain, 'PrometheusRule').spec).toEqual(parse(here))
    const { data } = one(manifests, 'ConfigMap', '-dashboard')
    expect(JSON.parse(data['roomful.json'])).toEqual(JSON.parse(read('../grafana/dashboards/roomful.json')))
  })

  it('scrapes with the job names of the alerts', () => {
    const jobs = of(render(example('production')), 'Service').flatMap(
      ({ metadata }) => metadata.labels!['roomful/job'] ?? [],
    )
    const known = parse(read('../prometheus/prometheus.yml')).scrape_configs.map(
      ({ job_name: jobName }: { job_name: string }) => jobName,
    )
    expect(jobs.sort()).toEqual(known.filter((job: string) => job.startsWith('roomful-')).sort())
  })

  it('writes numbers in variables as the program reads them', () => {
    const { spec } = one(render(example('production')), 'Deployment', '-node')
    const env = Object.fromEntries(
      spec.template.spec.containers[0].env.map(({ name, value }: { name: string; value: string }) => [
        name,
        value,
      ]),
    )
    expect(env).toMatchObject({
      MAX_ROOM_STATE_BYTES: '2097152',
      MAX_SESSIONS: '10000',
      REQUIRE_KEY_ID: '1',
      ALLOWED_ORIGINS: 'https://play.example.com',
    })
  })

  it('lets env set every variable of a plane that no other value sets', () => {
    const schema = JSON.parse(read('roomful/values.schema.json'))
    for (const [plane, command] of [
      ['control', 'control'],
      ['node', 'dataplane'],
    ] as const) {
      const refused: string[] = schema.properties[plane].properties.env.propertyNames.not.enum
      const { spec } = one(render({ ...example('production') }), 'Deployment', `-${plane}`)
      const set: string[] = spec.template.spec.containers[0].env.map((entry: { name: string }) => entry.name)
      const values = { ...example('production')[plane].env }
      const known: string[] = variables()
        .filter(([, { readBy }]) => readBy.includes(command))
        .flatMap(([name]) => [name, `${name}_FILE`])
      const byChart = set.filter((name) => known.includes(name) && !(name in values))
      // If the address of a pod is not reachable for an operator, or needs brackets, another URL is used.
      const both = plane === 'node' ? ['ADMIN_URL'] : []
      expect(byChart.filter((name) => !refused.includes(name))).toEqual(both)
      expect(refused.filter((name) => !known.includes(name))).toEqual([])
    }
  })

  it('accepts another address of the admin page than that of the pod', () => {
    const values = { ...example('smallest'), node: { env: { ADMIN_URL: 'http://[$(POD_IP)]:9100' } } }
    const { spec } = one(render(values), 'Deployment', '-node')
    const urls = spec.template.spec.containers[0].env.filter(
      ({ name }: { name: string }) => name === 'ADMIN_URL',
    )
    expect(urls).toEqual([{ name: 'ADMIN_URL', value: 'http://[$(POD_IP)]:9100' }])
  })

  it('prints the next steps, with commands that name existing objects', () => {
    const { 'templates/NOTES.txt': notes } = helm.text(CHART, { values: example('production') })
    expect(notes).toContain(
      'kubectl -n play rollout status deployment/game-roomful-control deployment/game-roomful-node',
    )
    expect(notes).toContain('get secret game-roomful-secrets -o jsonpath')
    expect(notes).toContain('wss://play.example.com')
  })
})
