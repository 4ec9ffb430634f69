import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { connect } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { stageClient } from '../deploy/build/release.ts'
import type board from '../deploy/create/board/rooms/board.ts'
import { roomfulProgram } from '../deploy/local/machine.ts'
import { linksOf } from './support/pages.ts'
import { startTyped } from './support/program.ts'
import { freePort } from './support/redis-server.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const run = promisify(execFile)

/** Time limit of a test that builds, packs and installs from the registry, for a busy machine. */
const NPM_INSTALLS_MS = 600_000

const ROOM = `
import { defineRoom } from 'roomful'
import * as v from 'valibot'

export default defineRoom({
  type: 'lobby',
  messages: { say: { data: v.object({ text: v.string() }) } },
  create: () => ({ said: [] as string[] }),
  onMessage(state, input) {
    if (input.data.text === 'extend') Object.assign(Array.prototype, { extended: true })
    state.said.push(input.data.text)
  },
})
`

const GAME = `
import { connect } from 'roomful/client'

const control = process.env.CONTROL
const post = async (path: string, body: object) =>
  (await fetch(control + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })).json()

const { id } = await post('/projects', { name: 'stranger' })
const { token } = await post('/tokens', { project_id: id, ttl_seconds: 60 })
const client = await connect(process.env.WEBSOCKET!, { projectId: id, token })
const room = await client.join<typeof import('./rooms/lobby.ts').default>('lobby', { key: 'a' })
await room.send('say', { text: 'hello' })
const refused = await room.send('say', { text: 'extend' }).catch((error) => error.code)
const said: readonly string[] = room.state.said
console.log(JSON.stringify({ said, refused }))
client.close()
`

const COMPILER_OPTIONS = {
  module: 'NodeNext',
  target: 'ES2023',
  strict: true,
  noEmit: true,
  incremental: true,
  allowImportingTsExtensions: true,
  types: ['node'],
  typeRoots: [`${root}node_modules/@types`],
}

const WITHIN = { timeout: 180_000, interval: 100 }

let folder = ''
const running: ReturnType<typeof startTyped>[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'roomful-package-'))
  // A build during a run would remove the compiled program from the other tests.
  const asBuilt = roomfulProgram().compiled ? ['--ignore-scripts'] : []
  await run('npm', ['pack', '--silent', ...asBuilt, '--pack-destination', folder], { cwd: root })
  const [tarball] = (await readdir(folder)).filter((name) => name.endsWith('.tgz'))
  await writeFile(
    join(folder, 'package.json'),
    JSON.stringify({ name: 'game', private: true, type: 'module' }),
  )
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: COMPILER_OPTIONS }))
  await mkdir(join(folder, 'rooms'))
  await writeFile(join(folder, 'rooms/lobby.ts'), ROOM)
  await writeFile(join(folder, 'game.ts'), GAME)
  const options = ['--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error']
  await run('npm', ['install', ...options, `./${tarball}`], { cwd: folder })
}, NPM_INSTALLS_MS)

afterAll(async () => {
  for (const { end } of running) end()
  await rm(folder, { recursive: true, force: true })
})

const bin = () => join(folder, 'node_modules/.bin/roomful')

/** Starts a command with the rooms of the folder at free ports. Resolves when it is ready. */
async function start(command: 'dev' | 'dataplane', env: Record<string, string>, cwd = folder) {
  const [control, websocket, admin, examples] = await Promise.all([
    freePort(),
    freePort(),
    freePort(),
    freePort(),
  ])
  const program = startTyped(`exec "${bin()}" ${command}`, cwd, {
    CONTROL_PORT: String(control),
    WS_PORT: String(websocket),
    ADMIN_PORT: String(admin),
    EXAMPLES_PORT: String(examples),
    ...env,
  })
  running.push(program)
  // With `dev`, the addresses are the sign.
  await program.said(command === 'dev' ? /store +memory/ : /dataplane ready/)
  const at = (port: number) => `http://127.0.0.1:${port}`
  return {
    ...program,
    control: at(control),
    admin: at(admin),
    examples: at(examples),
    websocket: `ws://127.0.0.1:${websocket}`,
  }
}

describe('the installed package', () => {
  it('has a command with help and version', async () => {
    const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
    expect((await run(bin(), ['--version'], { cwd: folder })).stdout.trim()).toBe(version)
    expect((await run(bin(), ['--help'], { cwd: folder })).stdout).toContain('CONTROL_PORT')
  })

  it('contains the files that its code reads. It contains no source files and no declarations of internal parts', async () => {
    const files = await readdir(join(folder, 'node_modules/roomful/dist'), { recursive: true })
    expect(files).toContain('shared/store/redis/lua/claim.lua')
    expect(files.filter((file) => /(?<!\.d)\.ts$|\.md$|from-source/.test(file))).toEqual([])
    // A public type that names the internal class of a room would bring the declarations of most of the node.
    expect(files).toContain('dataplane/room/room.js')
    expect(files).not.toContain('dataplane/room/room.d.ts')
  })

  it('has every page and file that its pages link to', async () => {
    const installed = join(folder, 'node_modules/roomful')
    const files = new Set(await readdir(installed, { recursive: true }))
    const shipped = [...files].filter((file) => file.endsWith('.md') && !file.includes('node_modules'))
    expect(shipped).toEqual(expect.arrayContaining(['README.md', 'docs/guides/first-game.md']))
    const dead: string[] = []
    for (const page of shipped)
      for (const link of linksOf(await readFile(join(installed, page), 'utf8'))) {
        const path = link.split('#')[0]!
        const target = join(dirname(page), path).replace(/\/$/, '')
        // Pictures of the site are too large. npm shows those of the README from the repository.
        const isPicture = target.startsWith('docs/site/public/')
        if (path && !isPicture && !files.has(target)) dead.push(`${page}: ${link}`)
      }
    expect(dead).toEqual([])
  })

  it('works with plain JavaScript for rooms, clients, backends and tests', async () => {
    const script = `
      import { defineRoom } from 'roomful'
      import { connect } from 'roomful/client'
      import { roomful } from 'roomful/server'
      import { testRooms } from 'roomful/test'
      const t = await testRooms([defineRoom({ type: 'lobby', create: () => ({ open: true }) })])
      const [a] = await t.join('lobby')
      console.log(typeof connect, typeof roomful, a.state.open)
    `
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', script], { cwd: folder })
    expect(stdout.trim()).toBe('function function true')
  })

  it('has types that infer from a room to its client', async () => {
    const compiler = join(root, 'node_modules/typescript/bin/tsc')
    const { stdout } = await run(process.execPath, [compiler, '-p', folder], { cwd: folder }).catch(
      (error) => error,
    )
    expect(stdout).toBe('')
    await writeFile(join(folder, 'wrong.ts'), GAME.replace("text: 'hello'", 'text: 1'))
    const wrong = await run(process.execPath, [compiler, '-p', folder], { cwd: folder }).catch(
      (error) => error,
    )
    await rm(join(folder, 'wrong.ts'))
    expect(wrong.stdout).toMatch(/^wrong\.ts.*error TS/)
  })

  it('plays a game: a room in TypeScript, a token, a client', async () => {
    const dev = await start('dev', {})
    for (const address of [dev.control, dev.admin])
      expect((await fetch(`${address}/healthz`)).status).toBe(200)
    await expect(fetch(dev.examples)).rejects.toThrow()
    const { stdout } = await run(process.execPath, ['--import', 'tsx', 'game.ts'], {
      cwd: folder,
      env: { PATH: process.env.PATH, CONTROL: dev.control, WEBSOCKET: dev.websocket },
    })
    // The built-in objects of the process are closed to room code.
    expect(JSON.parse(stdout)).toEqual({ said: ['hello'], refused: 'room_logic_failed' })
    dev.child.kill('SIGTERM')
    expect(await dev.ended).toBe(0)
  })

  it('plays the rooms of a game in a cluster, and continues them after a node is killed', async () => {
    const page = "console.log('the page has', process.env.VITE_ROOMFUL_URL); setInterval(() => {}, 1e9)"
    const line = `exec "${bin()}" cluster --free-ports --nodes 2 --controls 1 -- node -e "${page}"`
    const program = startTyped(line, folder, { TMPDIR: folder, REDIS_URL: inject('redisUrl') })
    running.push(program)
    const [, url = ''] = await program.said(/the page has (ws:\S+)/)
    const client = await connect(url, { dev: 'ada' })
    const room = await client.join('lobby')
    await room.send('say', { text: 'hello' })
    await vi.waitFor(async () => {
      const address = `${url.replace('ws', 'http')}/dev/kill?room=${room.id}`
      const { detail } = await (await fetch(address, { method: 'POST' })).json()
      expect(detail).toMatch(/was killed/)
    }, WITHIN)
    await room.send('say', { text: 'again' })
    expect(room.state).toEqual({ said: ['hello', 'again'] })
    client.close()
    program.child.stdin?.write('quit\n')
    expect(await program.ended).toBe(0)
  })

  it('contains the example games and the admin page', async () => {
    const dev = await start('dev', {}, tmpdir())
    expect(await (await fetch(dev.examples)).text()).toContain('roomful')
    expect(await (await fetch(`${dev.examples}/arena/`)).text()).toContain('<script')
    expect(await (await fetch(`${dev.admin}/admin`)).text()).toContain('Show the node')
    dev.child.kill('SIGTERM')
    expect(await dev.ended).toBe(0)
  })

  it('prints the packages to install for traces, which are optional peers', async () => {
    const env = { REDIS_URL: inject('redisUrl'), OTEL_TRACES_EXPORTER: 'otlp' }
    await expect(start('dataplane', { ...env, ROOMS_DIR: 'rooms' })).rejects.toThrow(
      /the package @opentelemetry\/\S+ is not installed\. Traces need: npm install @opentelemetry\/api /,
    )
  })

  it('serves rooms in JavaScript without the packages for TypeScript, pages and terminals', async () => {
    for (const name of ['tsx', 'esbuild', '@esbuild', 'pino-pretty'])
      await rm(join(folder, 'node_modules', name), { recursive: true, force: true })
    await mkdir(join(folder, 'built'))
    await writeFile(
      join(folder, 'built/lobby.js'),
      "import { defineRoom } from 'roomful'\nexport default defineRoom({ type: 'lobby', create: () => ({}) })\n",
    )
    const env = { REDIS_URL: inject('redisUrl'), KEY_PREFIX: 'test-package:' }
    const node = await start('dataplane', { ...env, ROOMS_DIR: 'built' })
    expect((await fetch(`${node.admin}/readyz`)).status).toBe(200)
    expect((await fetch(`${node.admin}/admin`)).status).toBe(200)
    node.child.kill('SIGTERM')
    expect(await node.ended).toBe(0)
    await expect(start('dataplane', { ...env, ROOMS_DIR: 'rooms' })).rejects.toThrow(
      /rooms\/lobby\.ts cannot be loaded: it is TypeScript, or imports some: npm install tsx/,
    )
  })
})

describe('roomful-client', () => {
  it('is only the client, with the same version and no dependencies', async () => {
    const [staged, page] = [join(folder, 'client-package'), join(folder, 'page')]
    await mkdir(staged)
    await mkdir(page)
    await stageClient(root, staged)
    await run('npm', ['pack', '--silent', '--pack-destination', page], { cwd: staged })
    const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
    await writeFile(join(page, 'package.json'), JSON.stringify({ private: true, type: 'module' }))
    const options = ['--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error', '--omit=peer']
    await run('npm', ['install', ...options, `./roomful-client-${version}.tgz`], { cwd: page })
    expect(await readdir(join(page, 'node_modules'))).toEqual(['.package-lock.json', 'roomful-client'])
    const script = `
      import * as client from 'roomful-client'
      const { connect } = await import('roomful-client/min')
      console.log(typeof client.connect, typeof connect)
    `
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', script], { cwd: page })
    expect(stdout.trim()).toBe('function function')
  })
})

describe('a new game', () => {
  let made = ''
  beforeAll(async () => {
    made = await mkdtemp(join(tmpdir(), 'roomful-create-'))
  })
  afterAll(() => rm(made, { recursive: true, force: true }))

  const npm = (words: string[], cwd: string) =>
    run('npm', ['--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error', ...words], { cwd })

  it(
    'from npm run new in a clone compiles, passes its tests, and runs after one command',
    async () => {
      const clone = join(made, 'roomful')
      const left = ['.git', 'dist', 'node_modules', 'release']
      await cp(root, clone, { recursive: true, filter: (path) => !left.includes(basename(path)) })
      await symlink(join(root, 'node_modules'), join(clone, 'node_modules'))
      const { stdout } = await npm(['run', 'new', '../my-game', '--', '--template', 'vanilla'], clone)
      expect(stdout).toMatch(/my-game is ready:\n\n {2}cd \.\.\/my-game\n {2}npm run dev\n/)
      const game = join(made, 'my-game')
      await npm(['run', 'build'], game)
      await npm(['test'], game)

      const [control, websocket, admin, page] = await Promise.all([
        freePort(),
        freePort(),
        freePort(),
        freePort(),
      ])
      const ports = {
        CONTROL_PORT: String(control),
        WS_PORT: String(websocket),
        ADMIN_PORT: String(admin),
      }
      const program = startTyped(`exec npm run dev -- --port ${page} --strictPort`, game, ports)
      running.push(program)
      const read = (path: string) =>
        fetch(`http://localhost:${page}${path}`).then((answer) => answer.text(), String)
      await expect.poll(() => read('/')).toContain('A board for everyone')
      expect(await read('/src/main.ts')).toContain(`"VITE_ROOMFUL_URL": "ws://127.0.0.1:${websocket}"`)
      const clients = await Promise.all(
        ['ada', 'bob'].map((dev) => connect(`ws://localhost:${websocket}`, { dev })),
      )
      const [ada, bob] = await Promise.all(clients.map((client) => client.join<typeof board>('board')))
      await ada!.send('dot', { x: 0.5, y: 0.5 })
      await expect.poll(() => bob!.state.dots.length).toBe(1)
      for (const client of clients) client.close()
      program.child.kill('SIGTERM')
      await program.ended
      await expect(fetch(`http://localhost:${page}`)).rejects.toThrow()
    },
    NPM_INSTALLS_MS,
  )

  it(
    'from npm create roomful works with every template',
    async () => {
      await run('npm', ['pack', '--silent', '--pack-destination', made], { cwd: join(root, 'deploy/create') })
      const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
      const starter = join(made, `create-roomful-${version}.tgz`)
      for (const [folderName, ...words] of [['plain'], ['in-react', '--template', 'react']])
        await npm(
          ['exec', '--yes', `--package=${starter}`, '--', 'create-roomful', folderName!, ...words],
          made,
        )
      const files = async (name: string) =>
        (await readdir(join(made, name), { recursive: true })).filter(
          (file) => !file.includes('node_modules'),
        )
      const installed = ['dist', 'package-lock.json', `roomful-${version}.tgz`]
      const fromClone = (await files('my-game')).filter(
        (file) => !installed.some((name) => file.startsWith(name)),
      )
      expect((await files('plain')).sort()).toEqual(fromClone.sort())

      const inReact = join(made, 'in-react')
      // Both games need the same packages.
      await rename(join(made, 'my-game/node_modules'), join(inReact, 'node_modules'))
      await npm(['install', '--ignore-scripts', join(folder, `roomful-${version}.tgz`)], inReact)
      // The room and its tests equal those of the other template.
      await npm(['run', 'build'], inReact)
    },
    NPM_INSTALLS_MS,
  )

  it.each([
    [['a', 'b'], 'b is one word too many'],
    [['game', '--template', 'reakt'], 'reakt is no template; there are backend, react, vanilla'],
    [['.'], 'is not empty'],
    [['--speed'], "Unknown option '--speed'"],
  ])('prints an error for the arguments %j', async (words, says) => {
    const result = run(process.execPath, [join(root, 'deploy/create/create.js'), ...words], { cwd: folder })
    await expect(result).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining(says) })
  })
})
