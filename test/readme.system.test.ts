import { execFile, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { validate } from 'dockerfile-utils'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { parse } from 'yaml'
import { loadRooms } from '../dataplane/room/loader.ts'
import { COMMANDS } from '../deploy/cli/arguments.ts'
import { anchorOf } from '../docs/site/pages.ts'
import { GAMES } from '../examples/backend/pages.ts'
import { parseRun } from '../loadtest/options.ts'
import { SCENARIOS } from '../loadtest/scenarios/index.ts'
import { variables } from '../shared/config/variables.ts'
import { CLOSE } from '../shared/protocol/error-codes.ts'
import { startService, type TestService } from './support/cluster.ts'
import { type Block, blocksOf, codeOf, inlineCode, linksOf, pages, ROOT, textOf } from './support/pages.ts'
import { startTyped } from './support/program.ts'
import { freePort } from './support/redis-server.ts'
import { newFolder } from './support/run-folder.ts'

const root = ROOT
const run = promisify(execFile)

let folder = ''
let readmeClient = ''
let service: TestService

beforeAll(async () => {
  folder = await newFolder()
  await symlink(join(root, 'node_modules'), join(folder, 'node_modules'), 'junction')
  await writeFile(join(folder, 'package.json'), JSON.stringify({ type: 'module' }))
  const [room, client] = codeOf('README.md', 'ts')
  readmeClient = client!
  await mkdir(join(folder, 'rooms'))
  await mkdir(join(folder, 'src'))
  await writeFile(join(folder, 'rooms/duel.ts'), room!)
  // The snippet imports `roomful/client` as the repository has it.
  const paths = { roomful: [`${root}dataplane/index.ts`], 'roomful/client': [`${root}client/index.ts`] }
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: { paths } }))
  service = await startService({ rooms: await loadRooms(join(folder, 'rooms')) })
})

afterAll(() => service?.close())

describe('the README', () => {
  it('has a room and a client that play', async () => {
    const { projectId, token } = await service.login()
    // The snippet without changes, except for the address of the service.
    const program = `
      import { writeFileSync } from 'node:fs'
      const seen: unknown[] = []
      const { log } = console
      console.log = (...shown: unknown[]) => void seen.push(shown)
      globalThis.fetch = async () => Response.json({ project_id: '${projectId}', token: '${token}' })
      const other = await connect('${service.wsUrl}', { projectId: '${projectId}', token: '${token}' })
      await other.join('duel', { key: 'table-7' })
      ${readmeClient.replace('ws://localhost:4000', service.wsUrl)}
      other.close()
      client.close()
      log(JSON.stringify({ seen, hands: Object.keys(room.state.hands).length }))
    `
    const imports = /^import .*$/gm
    const hoisted = [...new Set(program.match(imports) ?? [])].join('\n') + program.replace(imports, '')
    await writeFile(join(folder, 'src/play.ts'), hoisted)
    const { stdout } = await run(process.execPath, ['--import', 'tsx', join(folder, 'src/play.ts')], {
      env: { PATH: process.env.PATH, TSX_TSCONFIG_PATH: join(folder, 'tsconfig.json') },
    })
    await rm(join(folder, 'src/play.ts'))
    const { seen, hands } = JSON.parse(stdout)
    const power = seen[1]?.[2]
    const hand = expect.toSatisfy((cards: unknown[]) => cards.length === 3)
    const hp = expect.toSatisfy((all: object) => Object.values(all)[0] === 100 - power)
    expect(seen).toEqual([
      [hp, hand],
      ['hit', expect.any(String), power],
    ])
    expect([power > 0, hands]).toEqual([true, 1])
  })

  it('has calls in docs/guides/production.md that the control API answers', async () => {
    const [shell] = codeOf('docs/guides/production.md', 'sh', 'Tokens by hand')
    const calls = shell!.trim().replaceAll('\\\n', '').split('\n')
    const call = async (line: string, projectId = '') => {
      const command = line.replace('localhost:3000', service.controlUrl).replace('prj_…', projectId)
      return JSON.parse((await run('sh', ['-c', `${command} --silent --show-error --noproxy '*'`])).stdout)
    }
    expect(calls).toHaveLength(2)
    const project = await call(calls[0]!)
    expect(project).toMatchObject({ id: expect.stringMatching(/^prj_/), name: 'my game' })
    const issued = await call(calls[1]!, project.id)
    expect(issued).toMatchObject({
      token: expect.stringMatching(/^v4\.public\./),
      claims: { sub: 'player-1' },
    })
  })
})

describe('npm start', () => {
  it('serves all addresses of the README, whose ports are the defaults', async () => {
    const [begin] = codeOf('README.md', 'sh', 'roomful')
    const { names, examples, control, websocket, admin } = await started(
      begin!.match(/(?<=&& )npm start/)![0],
    )
    const answers = [examples, `${control}/docs`, websocket, `${admin}/admin`]
    const statuses = await Promise.all(answers.map(async (url) => (await fetch(url)).status))
    expect(statuses).toEqual([200, 200, 426, 200])
    const defaults = Object.fromEntries(variables().map(([name, variable]) => [name, variable.default]))
    for (const name of names) expect(textOf('README.md')).toContain(`://localhost:${defaults[name]}`)
  })

  it('passes the load test of docs/loadtest.md', async () => {
    const [serve, load] = codeOf('docs/loadtest.md', 'sh', 'Against a running service')
    const { control, websocket, admin } = await started(serve!)
    const out = join(folder, 'report')
    const elsewhere = `--control ${control} --ws ${websocket.replace('http', 'ws')} --out ${out}`
    const short = '--rooms 2 --members 2 --seconds 2'
    const command = load!.trim().replace('http://127.0.0.1:9100', admin)
    await run('bash', ['-euc', `${command} ${elsewhere} ${short}`], { cwd: root, env: bare })
    const report = JSON.parse(await readFile(join(out, 'report.json'), 'utf8'))
    expect(JSON.stringify(report)).toContain(admin)
  })
})

/** Environment of a new user. */
const bare = { PATH: process.env.PATH!, HOME: process.env.HOME!, TMPDIR: process.env.TMPDIR! }

/** Runs a command that starts a service in the repository, at free ports. Resolves when it is ready. It ends with the test. */
async function started(command: string) {
  const names = ['EXAMPLES_PORT', 'CONTROL_PORT', 'WS_PORT', 'ADMIN_PORT']
  const free = await Promise.all(names.map(async (name) => [name, String(await freePort())] as const))
  const ports: Readonly<Record<string, string>> = Object.fromEntries(free)
  const program = startTyped(command, root, ports)
  onTestFinished(program.end)
  // Not the line of its games: a service of the rooms in a folder has none.
  await program.said(/store +memory/)
  const [examples, control, websocket, admin] = names.map((name) => `http://127.0.0.1:${ports[name]}`)
  return { names, examples: examples!, control: control!, websocket: websocket!, admin: admin! }
}

it('docs/guides/first-game.md shows the files that npm create roomful writes', () => {
  const shown = codeOf('docs/guides/first-game.md', 'ts')
  const written = ['board/rooms/board.ts', 'templates/vanilla/src/main.ts', 'board/rooms/board.test.ts']
  expect(shown).toEqual(written.map((name) => textOf(`deploy/create/${name}`)))
})

/** Returns the anchors of a page. */
const headings = (text: string): string[] =>
  [...text.matchAll(/^#+ (.*)$/gm)].map(([, title]) => anchorOf(title!))

interface Manifest {
  readonly version: string
  readonly scripts: Readonly<Record<string, string>>
}
const manifest: Manifest = JSON.parse(textOf('package.json'))
/** Manifest of the games from `npm create roomful`. Guides are also about them. */
const game: Manifest = JSON.parse(textOf('deploy/create/templates/vanilla/package.json'))
const values = parse(textOf('deploy/helm/roomful/values.yaml'))
const known = new Set<string>(variables().map(([name]) => name))
const isVariable = (name: string): boolean => known.has(name.replace(/_FILE$/, ''))
const exists = (path: string): boolean => existsSync(join(ROOT, path))

/** Patterns of names in commands, each with a check that the name exists. */
const NAMES: readonly (readonly [pattern: RegExp, isThere: (name: string) => boolean])[] = [
  [/\bnpm run ([\w:-]+)/g, (script) => script in manifest.scripts || script in game.scripts],
  [/(?:^|\s)(deploy\/(?!\.env)[\w./-]*\w)/gm, exists],
  [/(?:^|&& |npx )roomful ([a-z]\S*)/gm, (command) => command === 'examples' || command in COMMANDS],
  [/(?:^|\/)roomful:(\S+)/gm, (version) => version === manifest.version],
  [/^((?:client|control|dataplane|docs|examples|loadtest|shared|test)\/[\w./-]+)$/gm, exists],
  [/\s-e ([A-Z][A-Z_]+)=/g, isVariable],
  [/(?:systemctl|journalctl) .*\b(roomful-\w+)@/g, (unit) => exists(`deploy/systemd/${unit}@.service`)],
  [/\s--set (\w[\w.]*)=/g, (path) => path.split('.').reduce((at, name) => at?.[name], values) !== undefined],
  [
    /\bnpm run loadtest -- ([\w -]+)$/gm,
    (words) => parseRun(words.split(' '), SCENARIOS, {}, 2).kind !== 'mistake',
  ],
]

const missingIn = (code: string): string[] =>
  NAMES.flatMap(([pattern, isThere]) =>
    [...code.matchAll(pattern)].filter(([, name]) => !isThere(name!)).map(([text]) => text.trim()),
  )

const blocks = pages().flatMap((page) => blocksOf(page))
const written = (language: string) => blocks.filter((block) => block.language === language)
const place = ({ page, line, heading }: Block) => `${page}:${line} (under "${heading}")`

/** Checks the names in all blocks. This file, runbooks.system.test.ts and the tests in deploy/ also run many of the blocks. */
describe('the pages', () => {
  it('name close codes that the protocol has', () => {
    const codes: readonly number[] = Object.values(CLOSE)
    for (const page of pages('docs'))
      for (const [, code] of textOf(page).matchAll(/\bwith (4[0-3]\d\d)\b/g))
        expect.soft(codes, page).toContain(Number(code))
  })

  it('have commands with existing names and variables', () => {
    for (const block of written('sh')) {
      const { page, code } = block
      expect.soft(spawnSync('bash', ['-n', '-c', code]).status, place(block)).toBe(0)
      const assigned = [...code.matchAll(/^(?:export )?([A-Z][A-Z_]+)=/gm)].map(([, name]) => name!)
      const own = (name: string): boolean =>
        textOf(page).includes(`$${name}`) || codeOf(page, 'ts').some((code) => code.includes(name))
      expect.soft(missingIn(code), place(block)).toEqual([])
      expect
        .soft(
          assigned.filter((name) => !isVariable(name) && !own(name)),
          place(block),
        )
        .toEqual([])
    }
    for (const page of pages()) expect.soft(inlineCode(page).flatMap(missingIn), page).toEqual([])
  })

  it('have code of at most 90 columns, also the rooms of the examples, which pages show', () => {
    const shown = blocks
      // The rules of a Redis user must be on one line.
      .filter(({ page }) => page !== 'docs/redis.md')
      .map((block) => [block.code, place(block)] as const)
    const rooms = GAMES.map((game) => `examples/${game}/room.ts`).map((path) => [textOf(path), path] as const)
    for (const [code, where] of [...shown, ...rooms])
      expect.soft(Math.max(...code.split('\n').map((line) => line.length)), where).toBeLessThanOrEqual(90)
  })

  it('have valid Dockerfiles, YAML and JSON', () => {
    for (const block of written('dockerfile')) {
      expect(validate(block.code), place(block)).toEqual([])
      for (const [, name] of block.code.matchAll(/^ENV ([A-Z_]+)=/gm)) expect(name).toSatisfy(isVariable)
    }
    for (const block of written('yaml')) expect(parse(block.code), place(block)).toEqual(expect.any(Object))
  })

  it('link to existing pages and headings', async () => {
    const broken: string[] = []
    for (const page of pages()) {
      for (const link of linksOf(textOf(page))) {
        const [path, anchor] = link.split('#')
        const target = path ? join(dirname(join(root, page)), path) : join(root, page)
        const there = await readFile(target, 'utf8').catch((error) => error.code === 'EISDIR' && '')
        if (there === false || (anchor && !headings(there).includes(anchor))) broken.push(`${page}: ${link}`)
      }
    }
    expect(broken).toEqual([])
  })
})
