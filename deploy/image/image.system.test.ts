import { existsSync, readFileSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { validate } from 'dockerfile-utils'
import { connect } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest'
import { parseConfig } from '../../shared/config.ts'
import { loginAt } from '../../test/support/calls.ts'
import {
  buildStages,
  Container,
  contextFiles,
  ignoredBy,
  parseStages,
  readImage,
  whyNoContainers,
} from '../../test/support/image/container.ts'
import { freePort } from '../../test/support/redis-server.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const { text, stages, final } = readImage()

/** Time limit of a build that installs from the registry on a busy machine. */
const NPM_INSTALLS_MS = 600_000

/** Returns the parent folders of a path: `a` and `a/b` for `a/b/c`. */
const foldersOf = (path: string): string[] =>
  path.split('/').flatMap((_, at, parts) => (at === 0 ? [] : [parts.slice(0, at).join('/')]))

describe('the Dockerfile', () => {
  it('has no complaint of a linter', () => {
    expect(validate(text).map(({ message, range }) => `${range.start.line + 1}: ${message}`)).toEqual([])
  })

  it('uses one exact version of a Node with long-term support', () => {
    for (const { base } of stages) expect(base).toMatch(/^node:(24|26)\.\d+\.\d+-bookworm-slim$/)
    expect(new Set(stages.map(({ base }) => base)).size).toBe(1)
  })

  it('runs as a numeric user who is not root', () => {
    const [uid, gid] = final.user!.split(':').map(Number)
    expect(Math.min(uid!, gid!)).toBeGreaterThan(0)
  })

  it('has its commands in the exec form, so that Node is process 1 and gets SIGTERM', () => {
    expect(final.entrypoint?.[0]).toBe('node')
    expect(final.cmd).toEqual(['--help'])
    expect(final.stopSignal).toBe('SIGTERM')
    expect(final.healthcheck?.words[0]).toBe('node')
    expect(final.healthcheck?.options).toMatchObject({ interval: '10s', timeout: '4s' })
  })

  it('runs no scripts of packages, and keeps build tools in the first stage', () => {
    const runs = stages.flatMap(({ steps }) => steps).filter((step) => step.kind === 'run')
    for (const install of runs.flatMap(({ command }) => command.match(/npm (ci|install|prune)[^&]*/g) ?? []))
      expect(install).toContain('--ignore-scripts')
    expect(final.steps.filter((step) => step.kind === 'run')).toEqual([])
    expect(final.steps.filter((step) => step.kind === 'copy' && step.from === undefined)).toEqual([])
  })

  it('exposes the ports of the planes, and keeps the control API closed until it has secrets', () => {
    const env = { ...final.env, REDIS_URL: 'redis://redis' }
    const node = parseConfig('dataplane', env)
    const closed = parseConfig('control', env)
    const secrets = {
      CONTROL_API_TOKENS: 'the-token-of-an-operator',
      KEYRING_SECRET: 'the-secret-of-the-keyring',
    }
    const open = parseConfig('control', { ...env, ...secrets })
    if (!node.ok || !open.ok) throw new Error('the environment of the image is not valid')
    expect(closed.ok).toBe(false)
    expect(final.exposed).toEqual([open.config.controlPort, node.config.wsPort, node.config.adminPort])
  })

  it('contains no secret, neither in its environment nor in its build', () => {
    expect(text).not.toMatch(/^\s*(ARG|ENV)\s[^\n]*(TOKEN|SECRET|PASSWORD|KEY)/im)
  })
})

describe('the build context', () => {
  it('contains the sources of the build, without tests and files of this machine', () => {
    const files = contextFiles(root)
    for (const file of [
      'package.json',
      'package-lock.json',
      'deploy/cli/roomful.ts',
      'shared/store/redis/lua',
    ])
      expect(
        files.some((one) => one.startsWith(file)),
        file,
      ).toBe(true)
    expect(
      files.filter((file) =>
        /\.test\.ts$|\.md$|^(test(?!\/kit\/)|docs|loadtest|node_modules|dist|\.git)\//.test(file),
      ),
    ).toEqual([])
  })

  it('excludes no folder of which it contains files, because some tools would not enter it', () => {
    const ignored = ignoredBy(readFileSync(join(root, '.dockerignore'), 'utf8'))
    const folders = new Set(contextFiles(root).flatMap(foldersOf))
    expect(folders).toContain('deploy/image')
    expect([...folders].filter(ignored)).toEqual([])
  })

  it('is matched as Docker matches .dockerignore', () => {
    const ignored = ignoredBy('# all\n*\n!a\n!b/c\n**/*.test.ts\n!a/keep.test.ts\n')
    expect(['a/x.ts', 'b/c/d.ts', 'a/keep.test.ts'].filter(ignored)).toEqual([])
    expect(['x', 'b/d', 'a/b/y.test.ts', 'b/c.ts'].filter((path) => !ignored(path))).toEqual([])
  })

  it('has no instruction that these tests ignore', () => {
    expect(() => parseStages('FROM node:24\nONBUILD RUN true')).toThrow(
      'ONBUILD: parseStages does not know this instruction',
    )
  })
})

const missing = whyNoContainers()
if (missing) process.stderr.write(`skipped: the steps of the Dockerfile are not run, since ${missing}\n`)

describe.skipIf(missing !== undefined)('the result of its steps, without an engine', () => {
  const secrets = {
    INTERNAL_TOKEN: 'internal-token-of-the-image',
    CONTROL_API_TOKENS: 'operator-token-of-the-image',
    KEYRING_SECRET: 'keyring-secret-of-the-image',
  }
  let folder = ''
  let image = ''

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'roomful-image-'))
    image = await buildStages(stages, root, folder)
  }, NPM_INSTALLS_MS)
  afterAll(() => rm(folder, { recursive: true, force: true }))

  /** Does the same as `docker run --read-only --tmpfs /tmp` with the built image. */
  function start(words: readonly string[], env: Record<string, string> = {}): Container {
    const container = new Container({
      root: image,
      writable: false,
      user: final.user!,
      workdir: final.workdir,
      env: { ...final.env, ...env },
      words: [...final.entrypoint!, ...words],
    })
    onTestFinished(() => container.kill())
    return container
  }

  const shared = (keyPrefix: string) => ({
    REDIS_URL: inject('redisUrl'),
    KEY_PREFIX: keyPrefix,
    ...secrets,
  })
  const healthy = (container: Container) => container.exec(final.healthcheck!.words)

  async function startControl(keyPrefix: string) {
    const port = await freePort()
    const container = start(['control'], { ...shared(keyPrefix), CONTROL_PORT: String(port) })
    await container.said(/control ready/)
    return { container, url: `http://127.0.0.1:${port}` }
  }

  async function startNode(keyPrefix: string, controlUrl: string, env: Record<string, string> = {}) {
    const [ws, admin] = [await freePort(), await freePort()]
    const container = start(['dataplane'], {
      ...shared(keyPrefix),
      CONTROL_URL: controlUrl,
      WS_PORT: String(ws),
      ADMIN_PORT: String(admin),
      DRAIN_SECONDS: '0',
      ...env,
    })
    await container.said(/dataplane ready/)
    return { container, ws_url: `ws://127.0.0.1:${ws}`, admin_url: `http://127.0.0.1:${admin}` }
  }

  it('is small, and contains only the program and its dependencies', async () => {
    expect((await readdir(join(image, 'app'))).sort()).toEqual([
      'LICENSE',
      'dist',
      'node_modules',
      'package.json',
    ])
    const { dependencies, optionalDependencies, peerDependencies, devDependencies } = JSON.parse(
      await readFile(join(root, 'package.json'), 'utf8'),
    )
    const there = (name: string) => existsSync(join(image, 'app/node_modules', name))
    // Optional dependencies as well, because nothing can be installed in a container later. Without React, which pages use elsewhere, and
    // pg, which rooms with Postgres bring with them.
    const used = Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies }).filter(
      (name) => name !== 'react' && name !== 'pg',
    )
    expect(used.filter((name) => !there(name))).toEqual([])
    expect(Object.keys(devDependencies).filter((name) => there(name) && !used.includes(name))).toEqual([])
    const entries = await readdir(join(image, 'app/node_modules'), { recursive: true, withFileTypes: true })
    const paths = entries.map(({ parentPath, name }) => join(parentPath, name))
    expect(paths.filter((path) => !existsSync(path))).toEqual([])
    const filled = new Set(entries.map(({ parentPath }) => parentPath))
    expect(paths.filter((path, at) => entries[at]!.isDirectory() && !filled.has(path))).toEqual([])
    let bytes = 0
    for (const entry of await readdir(join(image, 'app'), { recursive: true, withFileTypes: true }))
      if (entry.isFile()) bytes += (await stat(join(entry.parentPath, entry.name))).size
    expect(bytes / 1e6).toBeLessThan(75)
  })

  it('prints its help without a command', async () => {
    const container = start(final.cmd!)
    expect(await container.ended).toBe(0)
    expect(container.output()).toContain('CONTROL_PORT')
  })

  it('refuses to open the control API to all machines', async () => {
    const container = start(['control'], { REDIS_URL: inject('redisUrl') })
    expect(await container.ended).toBe(2)
    expect(container.output()).toContain('CONTROL_API_TOKENS')
  })

  it('serves a game with control and a node, as any user, on a read-only root', async () => {
    const prefix = `image-${crypto.randomUUID()}:`
    const control = await startControl(prefix)
    const node = await startNode(prefix, control.url)
    for (const { container } of [control, node]) {
      expect(await healthy(container)).toEqual({ code: 0, output: '' })
      expect(container.status('Uid').split(/\s+/)).toEqual(Array(4).fill(final.user!.split(':')[0]))
      expect(container.status('CapEff')).toMatch(/^0+$/)
      expect(container.status('NoNewPrivs')).toBe('1')
      expect(container.status('NSpid')).toMatch(/\b1$/)
      const write = await container.exec(['sh', '-c', 'touch /app/x || touch /x || touch /app/dist/x'])
      expect(write.code).not.toBe(0)
      expect(write.output).toContain('Read-only file system')
    }
    const client = await connect(
      node.ws_url,
      await loginAt(control.url, {}, { authorization: `Bearer ${secrets.CONTROL_API_TOKENS}` }),
    )
    const room = await client.join('counter', { key: 'image' })
    await room.send('inc', { by: 2 })
    expect(room.state).toEqual({ count: 2 })
    client.close()
    for (const { container } of [node, control]) {
      container.signal(final.stopSignal as NodeJS.Signals)
      expect(await container.ended, container.output()).toBe(0)
    }
  })

  it('loads room types in TypeScript that another image adds', async () => {
    const room = await readFile(join(root, 'README.md'), 'utf8').then(
      (page) => /```ts\n(.*?)```/s.exec(page)![1]!,
    )
    await mkdir(join(image, 'app/rooms'))
    onTestFinished(() => rm(join(image, 'app/rooms'), { recursive: true }))
    await writeFile(join(image, 'app/rooms/duel.ts'), room)
    const prefix = `image-${crypto.randomUUID()}:`
    const control = await startControl(prefix)
    const { container } = await startNode(prefix, control.url, { ROOMS_DIR: '/app/rooms' })
    expect(container.output()).toContain('"room_types":["duel"]')
  })

  it('is unhealthy if its plane does not answer', async () => {
    const { container } = await startControl(`image-${crypto.randomUUID()}:`)
    container.signal('SIGSTOP')
    const { code, output } = await healthy(container)
    container.signal('SIGCONT')
    expect(code).toBe(1)
    expect(output).toMatch(/^unhealthy: .*(aborted|timeout)/)
  })
})
