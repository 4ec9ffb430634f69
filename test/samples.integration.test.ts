import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { connect } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { notifyKeys, notifySignature } from '../shared/notify-keys.ts'
import { type GameProjects, gameProjects } from './support/game-projects.ts'
import { type Block, blocksOf, pages, ROOT } from './support/pages.ts'
import { startTyped } from './support/program.ts'
import { freePort } from './support/redis-server.ts'
import { processTree, runEnvironment } from './support/run-folder.ts'
import { installed, type Sample, samplesOf } from './support/samples.ts'

const run = promisify(execFile)

/** Time limit of a test with a compiler or a bundler, on a busy machine. */
const COMPILES_MS = 600_000

/** Pages whose samples are tried. */
const PAGES = [
  'README.md',
  ...['backend', 'client', 'matchmaking', 'recipes', 'rooms', 'site/index'].map((name) => `docs/${name}.md`),
  // test/engines.long.test.ts has the samples of this page.
  ...pages('docs/guides').filter((page) => page !== 'docs/guides/phaser-and-pixi.md'),
]

/** Pages with the rooms that samples of a page play. The page links to them. */
const ROOMS_OF: Readonly<Record<string, readonly string[]>> = {
  'docs/client.md': ['README.md', 'docs/rooms.md'],
  'docs/guides/react.md': ['README.md', 'docs/matchmaking.md'],
}

const BOARD_TEST = 'rooms/board.test.ts'

/** Folders that a project compiles. */
const INCLUDED = ['rooms', 'src', 'backend']

/** A project of a reader who has typed the samples of a page. A file that the page shows twice makes a second project. */
interface Project {
  readonly folder: string
  readonly samples: readonly Sample[]
}

let games: GameProjects
let folder = ''
const projects: Project[] = []
const templates: string[] = []

beforeAll(async () => {
  games = await gameProjects()
  for (const template of ['vanilla', 'react', 'backend'])
    templates.push(await games.create(template, template))
  folder = dirname(templates[0]!)
  await writeFile(join(folder, 'all.test.ts'), LOADS)
  for (const page of PAGES) {
    const own = samplesOf(page)
    const borrowed = (ROOMS_OF[page] ?? [])
      .flatMap((other) => samplesOf(other))
      .filter(({ name }) => name.startsWith('rooms/'))
    const name = basename(page, '.md')
    const stages: Sample[][] = [borrowed.filter((room) => !own.some((sample) => sample.name === room.name))]
    for (const sample of own) {
      const last = stages.at(-1)!
      if (last.some((earlier) => earlier.name === sample.name))
        stages.push(last.filter((earlier) => earlier.name !== sample.name))
      stages.at(-1)!.push(sample)
    }
    for (const [index, samples] of stages.entries()) {
      const game = await games.create(`${name}-${index + 1}`, name === 'react' ? 'react' : 'vanilla')
      await games.install(game, installed(page))
      for (const sample of samples) {
        await mkdir(dirname(join(game, sample.name)), { recursive: true })
        await writeFile(join(game, sample.name), sample.code)
      }
      // The tests of the template run once, and pages may replace its room.
      if (!samples.some(({ name }) => name === BOARD_TEST)) await rm(join(game, BOARD_TEST))
      projects.push({ folder: game, samples })
    }
  }
}, COMPILES_MS)

/** Loads the rooms of all projects: a mistake in a definition is found then. */
const LOADS = `import { expect, test } from 'vitest'
test('rooms can be loaded', () => {
  const rooms = import.meta.glob(['./*/rooms/**/*.ts', '!./*/rooms/**/*.test.ts', '!./*/rooms/**/*.d.ts'], { eager: true })
  expect(Object.keys(rooms).length).toBeGreaterThan(30)
})
`

/** Runs a program of a project's packages in `cwd`. Returns its output, with an error also that of the error. */
async function tool(
  cwd: string,
  program: string,
  ...words: string[]
): Promise<{ ok: boolean; output: string }> {
  const at = join(templates[0]!, 'node_modules/.bin', program)
  const options = { cwd, env: { ...runEnvironment(), CI: '1', NO_COLOR: '1' }, maxBuffer: 64 * 1024 * 1024 }
  return run(process.execPath, [at, ...words], options).then(
    ({ stdout, stderr }) => ({ ok: true, output: stdout + stderr }),
    ({ stdout, stderr }) => ({ ok: false, output: `${stdout}${stderr}` }),
  )
}

describe('the samples of the pages, in projects of their readers', { timeout: COMPILES_MS }, () => {
  it('compile', async () => {
    // A package of which a project declares types has them in its whole program. The other projects share one, which takes less time.
    const alone = projects.filter(({ samples }) =>
      samples.some(({ code }) => code.includes('declare module')),
    )
    const together = projects.filter((project) => !alone.includes(project))
    const include = together.flatMap(({ folder }) =>
      INCLUDED.map((path) => join('..', basename(folder), path)),
    )
    const shared = join(templates[0]!, 'tsconfig.all.json')
    await writeFile(shared, JSON.stringify({ extends: './tsconfig.json', include }))
    const programs = [
      shared,
      ...[...templates, ...alone.map(({ folder }) => folder)].map((at) => join(at, 'tsconfig.json')),
    ]
    const outputs: string[] = []
    for (const program of programs) outputs.push((await tool(folder, 'tsc', '-p', program)).output)
    expect(outputs.filter((output) => output !== '')).toEqual([])
  })

  it('have rooms that load, and tests that pass', async () => {
    // The time limit is for a busy machine: a reader's machine runs one project at a time.
    const { ok, output } = await tool(folder, 'vitest', 'run', '--no-isolate', '--testTimeout=120000')
    expect(ok, output).toBe(true)
    const tests = projects.flatMap(({ folder, samples }) =>
      samples.filter(({ name }) => name.includes('.test.')).map(({ name }) => join(basename(folder), name)),
    )
    expect(tests.length).toBeGreaterThan(8)
    for (const file of tests) expect(output).toContain(file)
  })

  it('are bundled for the browser', async () => {
    const input = projects.flatMap(({ folder, samples }) =>
      samples.filter(({ name }) => name.startsWith('src/')).map(({ name }) => join(basename(folder), name)),
    )
    expect(input.length).toBeGreaterThan(10)
    const build = { rollupOptions: { input } }
    await writeFile(join(folder, 'vite.config.js'), `export default ${JSON.stringify({ build })}`)
    const { ok, output } = await tool(folder, 'vite', 'build')
    expect(ok, output).toBe(true)
  })
})

/** Commands that other tests type, and the test. */
const TYPED: readonly (readonly [page: string, command: string, test: string])[] = [
  ['README.md', 'npm ci && npm start', 'test/readme.system.test.ts'],
  ['README.md', 'npm run new', 'test/package.system.test.ts'],
  ['docs/guides/production.md', 'curl localhost:3000/projects', 'test/readme.system.test.ts'],
  ['docs/guides/break-a-cluster.md', 'npm run cluster', 'test/cluster-command.system.test.ts'],
  ['docs/guides/first-game.md', 'npm ci\nnpm run new', 'test/package.system.test.ts'],
  ['docs/guides/show-to-a-friend.md', 'npm run dev -- --lan', 'deploy/cli/lan.test.ts'],
  ['docs/guides/show-to-a-friend.md', 'npm run dev -- --lan', 'deploy/cli/lan.test.ts'],
  ['docs/guides/testing-rooms.md', 'npx roomful cluster -- vite', 'test/package.system.test.ts'],
  ['docs/guides/types-for-lua-and-python.md', 'npx roomful types', 'deploy/types/types.integration.test.ts'],
  ['docs/guides/your-own-client.md', 'curl -d', 'deploy/cli/dev-routes.test.ts'],
  ['docs/guides/your-own-client.md', 'npm run cluster', 'test/clients/faults.long.test.ts'],
  ['docs/site/index.md', 'npm run new', 'test/package.system.test.ts'],
]

describe('the commands of the pages', { timeout: COMPILES_MS }, () => {
  const typed: Block[] = []
  const running: ReturnType<typeof startTyped>[] = []
  afterAll(() => {
    for (const { end } of running) end()
  })

  /** Returns a block of commands, which a test types now. */
  function block(page: string, begin: string): string {
    const found = blocksOf(page, 'sh').find(({ code }) => code.includes(begin))
    if (!found) throw new Error(`${page} has no commands with ${begin}`)
    typed.push(found)
    return found.code
  }
  const gameOf = (page: string) =>
    projects.find(({ folder }) => basename(folder).startsWith(`${basename(page, '.md')}-`))!.folder
  const type = async (code: string, cwd: string, env: Readonly<Record<string, string>>) =>
    (await run('bash', ['-euo', 'pipefail', '-c', code], { cwd, env: { ...runEnvironment(), ...env } }))
      .stdout

  /** Types commands that start a server at PORT, and resolves when it answers. */
  async function serve(
    code: string,
    cwd: string,
    env: Readonly<Record<string, string>> & { readonly PORT: string },
  ) {
    const program = startTyped(code, cwd, env)
    running.push(program)
    const ask = (method: string, path: string, body?: object) =>
      fetch(`http://127.0.0.1:${env.PORT}${path}`, {
        method,
        headers: { 'x-player': 'ada' },
        ...(body && { body: JSON.stringify(body) }),
      })
    await expect
      .poll(() =>
        ask('GET', '/').then(
          () => true,
          () => program.output(),
        ),
      )
      .toBe(true)
    return ask
  }

  it('of an operator create a key for the calls of the backend, which other pages make', async () => {
    const production = 'docs/guides/production.md'
    const backend = 'docs/backend.md'
    const game = gameOf(backend)
    const [control, websocket, admin, port, guests] = await freePorts(5)
    const operator = {
      CONTROL_URL: `http://127.0.0.1:${control}`,
      CONTROL_API_TOKENS: 'an-operator-token-of-32-characters',
      OPERATOR_TOKEN: 'an-operator-token-of-32-characters',
      no_proxy: '*',
    }
    const dev = startTyped('npx roomful dev', game, {
      ...operator,
      CONTROL_PORT: control!,
      WS_PORT: websocket!,
      ADMIN_PORT: admin!,
      NOTIFY_URL: `http://127.0.0.1:${port}/notices`,
      NOTIFY_SECRET: `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
    })
    running.push(dev)
    await dev.said(/store +memory/)

    const [createProject, createKey] = block(production, '/keys').split(/^(?=curl)/m)
    const { id: PROJECT_ID } = JSON.parse(await type(createProject!, game, operator))
    const { secret: ROOMFUL_KEY } = JSON.parse(await type(createKey!, game, { ...operator, PROJECT_ID }))
    const NOTIFY_KEY = (await type(block(backend, 'notify-key'), game, { ...operator, PROJECT_ID })).trim()
    const { CONTROL_URL } = operator
    const env = { CONTROL_URL, PROJECT_ID, ROOMFUL_KEY, NOTIFY_KEY }

    const ask = await serve('npx tsx backend/server.ts', game, { ...env, PORT: port! })
    const token = await (await ask('POST', '/token')).text()
    const client = await connect(`ws://127.0.0.1:${websocket}`, { token })
    const room = await client.join('duel', { key: 'table-7' })
    expect(
      JSON.parse(await type(block(backend, '/calls/grant'), game, { ...env, no_proxy: '*' })),
    ).toMatchObject({
      reply: { total: 5 },
    })
    const order = { id: 'order-1', table: 'table-7', player: 'ada', gold: 5 }
    expect(await (await ask('POST', '/orders', order)).json()).toEqual({ total: 5 })
    await room.send('win')
    await expect.poll(async () => (await ask('GET', '/wins')).json()).toEqual(['ada'])
    const left = new Promise((resolve) => room.onLeave(resolve))
    expect((await ask('DELETE', '/tables/table-7')).status).toBe(204)
    expect(await left).toBe('closed')
    client.close()

    const askGuests = await serve(block(production, 'npx tsx'), gameOf(production), { ...env, PORT: guests! })
    const cookie = (await askGuests('POST', '/token')).headers.get('set-cookie')!
    expect(cookie).toMatch(/^player=[\w-]{36}\..*HttpOnly; Secure; SameSite=Lax$/)
    await type(block(production, '/revoke'), game, { ...operator, PROJECT_ID })
    const jwks = await type(`${block(production, 'AUTH_JWKS')}printf %s "$AUTH_JWKS"`, game, {})
    expect(JSON.parse(jwks)).toMatchObject({ audience: 'my-game' })
  })

  it('of a developer start a backend in TypeScript together with the rooms', async () => {
    const game = gameOf('docs/backend.md')
    const [CONTROL_PORT, WS_PORT, ADMIN_PORT, PORT] = await freePorts(4)
    const ports = { CONTROL_PORT: CONTROL_PORT!, WS_PORT: WS_PORT!, ADMIN_PORT: ADMIN_PORT!, PORT: PORT! }
    const ask = await serve(block('docs/backend.md', 'roomful dev'), game, ports)
    expect((await ask('POST', '/token')).status).toBe(200)
  })

  it('create the table of a room in Postgres', async () => {
    const game = gameOf('docs/guides/keeping-state.md')
    // The statement itself is tried in a Postgres by the tests of roomful/postgres.
    const stub = `psql() { cat; }\n${block('docs/guides/keeping-state.md', 'psql')}`
    expect(await type(stub, game, { DATABASE_URL: 'postgres://127.0.0.1/game' })).toMatch(
      /CREATE TABLE .*rooms/,
    )
  })

  it('are typed by a test', () => {
    const unknown = PAGES.flatMap((page) => blocksOf(page, 'sh'))
      .filter((one) => !typed.some(({ page, line }) => page === one.page && line === one.line))
      .filter(
        ({ code }) =>
          !code
            .trim()
            .split('\n')
            .every((line) => line.startsWith('npm install ')),
      )
      .filter(({ page, code }) => !TYPED.some(([of, begin]) => of === page && code.startsWith(begin)))
    expect(unknown.map(({ page, line }) => `${page}:${line}`)).toEqual([])
    for (const [, , test] of TYPED) expect(existsSync(join(ROOT, test)), test).toBe(true)
  })
})

it('The template with a backend has at most 450 lines of rooms, backend and page', async () => {
  const folder = join(ROOT, 'deploy/create/templates/backend')
  const files = ['rooms', 'backend', 'src'].map((name) =>
    readdir(join(folder, name), { recursive: true, withFileTypes: true }),
  )
  const code = (await Promise.all(files)).flat().filter(({ name }) => /(?<!\.test)\.ts$/.test(name))
  const paths = [join(folder, 'index.html'), ...code.map(({ parentPath, name }) => join(parentPath, name))]
  const texts = await Promise.all(paths.map((path) => readFile(path, 'utf8')))
  expect(texts.length).toBeGreaterThan(8)
  expect(texts.join('').split('\n').length - 1).toBeLessThanOrEqual(450)
})

describe('npm run dev of the template with a backend', { timeout: COMPILES_MS }, () => {
  it('starts page, rooms and backend, and Ctrl-C ends all of them', async () => {
    const game = templates.at(-1)!
    const [CONTROL_PORT, WS_PORT, ADMIN_PORT, page] = await freePorts(4)
    const at = `http://localhost:${page}`
    const ports = { CONTROL_PORT: CONTROL_PORT!, WS_PORT: WS_PORT!, ADMIN_PORT: ADMIN_PORT! }
    const notify = { NOTIFY_URL: `http://127.0.0.1:${page}/api/notices`, DATABASE_FILE: ':memory:' }
    const dev = startTyped(`npm run dev -- --port ${page}`, game, { ...ports, ...notify })
    onTestFinished(dev.end)
    const [, project] = await dev.said(/project +(\S+)/)
    await expect
      .poll(() =>
        fetch(at).then(
          (answer) => answer.text(),
          () => dev.output(),
        ),
      )
      .toContain('Quiz')

    const answer = await fetch(`${at}/api/token`, { method: 'POST' })
    const cookie = answer.headers.get('set-cookie')!.split(';')[0]!
    const client = await connect(`ws://127.0.0.1:${WS_PORT}`, { token: await answer.text() })
    const room = await client.create('quiz')
    const [{ sub }] = room.members as unknown as [{ sub: string }]
    expect(decodeURIComponent(cookie)).toContain(`player=${sub}.`)
    client.close()
    expect(dev.output()).not.toContain('room file ignored')

    // The secret of .env.development reaches the backend as the key of the project.
    const [, secret] = /^NOTIFY_SECRET=(.*)$/m.exec(await readFile(join(game, '.env.development'), 'utf8'))!
    const [key] = notifyKeys([secret!], project!)
    const body = JSON.stringify({
      type: 'matchOver',
      project_id: project,
      room_id: room.id,
      epoch: 1,
      seq: 1,
      at: new Date().toISOString(),
      data: { [sub]: 4 },
    })
    const headers = signed(key!, 'notice-1', body)
    for (const _ of [1, 2])
      expect((await fetch(notify.NOTIFY_URL, { method: 'POST', headers, body })).status).toBe(204)
    expect(await (await fetch(`${at}/api/coins`, { headers: { cookie } })).json()).toEqual({ coins: 4 })

    // A terminal sends the signal to all of them.
    for (const pid of processTree(dev.child.pid!).reverse()) process.kill(pid, 'SIGINT')
    await dev.ended
    for (const address of [at, `http://127.0.0.1:${CONTROL_PORT}`])
      await expect(fetch(address)).rejects.toThrow()
  })
})

/** Returns the headers of a notice (Standard Webhooks). */
function signed(key: string, id: string, body: string): Record<string, string> {
  const at = String(Math.floor(Date.now() / 1000))
  const signature = notifySignature(key, `${id}.${at}.${body}`)
  return { 'webhook-id': id, 'webhook-timestamp': at, 'webhook-signature': `v1,${signature}` }
}

const freePorts = (count: number) =>
  Promise.all(Array.from({ length: count }, async () => String(await freePort())))
