import { execFile, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
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

/** Functions that the snippets of a client leave to the reader. */
const GIVEN = `
declare function draw(hp: Readonly<Record<string, number>>, hand?: readonly number[]): void
declare function shake(target: string, power: number): void
export {}
`

/** Time limit for several runs of the compiler, on a busy machine. */
const COMPILES_MS = 90_000

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
  await writeFile(join(folder, 'rooms/duel.ts'), room!)
  const options = { extends: `${root}tsconfig.json`, include: ['*.ts', '*.tsx', 'rooms', 'shown'] }
  const compilerOptions = {
    paths: {
      roomful: [`${root}dataplane/index.ts`],
      'roomful/client': [`${root}client/index.ts`],
      'roomful/server': [`${root}server/index.ts`],
      'roomful/client/motion': [`${root}client/motion.ts`],
      'roomful/client/queue': [`${root}client/queue.ts`],
      'roomful/postgres': [`${root}dataplane/features/saves/postgres.ts`],
      'roomful/react': [`${root}client/react.ts`],
      'roomful/test': [`${root}test/kit/index.ts`],
    },
    types: ['node'],
    typeRoots: [`${root}node_modules/@types`],
    noUnusedLocals: false,
    // The compiler checks the imports of all snippets only once.
    incremental: true,
    tsBuildInfoFile: 'checked.json',
  }
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ ...options, compilerOptions }))
  service = await startService({ rooms: await loadRooms(join(folder, 'rooms')) })
})

afterAll(() => service?.close())

async function write(files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true })
    await writeFile(join(folder, name), text)
  }
}

/** Compiles a program of these files. Returns the errors. */
async function complaints(files: Readonly<Record<string, string>>): Promise<string> {
  await write(files)
  const compiler = join(root, 'node_modules/typescript/bin/tsc')
  const { stdout } = await run(process.execPath, [compiler, '-p', folder]).catch((error) => error)
  for (const name of Object.keys(files)) await rm(join(folder, name))
  return stdout
}

describe('the README', { timeout: COMPILES_MS }, () => {
  it('has a room and a client with matching types', async () => {
    expect(await complaints({ 'client.ts': `${readmeClient}\n${GIVEN}` })).toBe('')
    const wrong = readmeClient.replace('{ card: 0 }', "{ card: 'ace' }")
    expect(await complaints({ 'client.ts': `${wrong}\n${GIVEN}` })).toMatch(/client\.ts.*error TS/)
  })

  it('has a room and a client that play', async () => {
    const { projectId, token } = await service.login()
    // The snippet without changes, except for the address of the service. The test provides the functions that it leaves to the reader.
    const program = `
      import { writeFileSync } from 'node:fs'
      const seen: unknown[] = []
      const draw = (hp: object, hand: readonly number[]) => void seen.push({ hp: Object.values(hp), hand })
      const shake = (_target: string, power: number) => void seen.push({ hit: power })
      globalThis.fetch = async () => Response.json({ project_id: '${projectId}', token: '${token}' })
      const other = await connect('${service.wsUrl}', { projectId: '${projectId}', token: '${token}' })
      await other.join('duel', { key: 'table-7' })
      ${readmeClient.replace('ws://localhost:4000', service.wsUrl)}
      other.close()
      client.close()
      console.log(JSON.stringify({ seen, hands: Object.keys(room.state.hands).length }))
    `
    const imports = /^import .*$/gm
    const hoisted = [...new Set(program.match(imports) ?? [])].join('\n') + program.replace(imports, '')
    await writeFile(join(folder, 'play.ts'), hoisted)
    const { stdout } = await run(process.execPath, ['--import', 'tsx', join(folder, 'play.ts')], {
      env: { PATH: process.env.PATH, TSX_TSCONFIG_PATH: join(folder, 'tsconfig.json') },
    })
    await rm(join(folder, 'play.ts'))
    const { seen, hands } = JSON.parse(stdout)
    const power = seen[1]?.hit
    const hand = expect.toSatisfy((cards: unknown[]) => cards.length === 3)
    expect(seen).toEqual([{ hp: [100 - power], hand }, { hit: power }])
    expect([power > 0, hands]).toEqual([true, 1])
  })

  it('has calls that the control API answers', async () => {
    const [shell] = codeOf('README.md', 'sh', 'Tokens')
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
  it('serves all addresses in the table of the README, whose ports are the defaults', async () => {
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
  await program.said(/dev ready/)
  const [examples, control, websocket, admin] = names.map((name) => `http://127.0.0.1:${ports[name]}`)
  return { names, examples: examples!, control: control!, websocket: websocket!, admin: admin! }
}

/** Guides with a room and tests of it. */
const TESTED: readonly (readonly [page: string, roomFile: string, passed: number])[] = [
  ['docs/guides/testing-rooms.md', 'rooms/duel.ts', 6],
  ['docs/guides/reconnecting.md', 'rooms/dice.ts', 3],
  ['docs/guides/time.md', 'rooms/table.ts', 4],
  ['docs/guides/hidden-information.md', 'rooms/cards.ts', 1],
]

/** Puts the files below `shown`, in one folder for each page. */
const below = (page: string, files: readonly (readonly [name: string, text: string])[]) =>
  files.map(([name, text]) => [`shown/${basename(page, '.md')}/${name}`, text] as const)

/** Returns the files of a guide: its room and its other blocks. */
const testedCode = ([page, roomFile]: (typeof TESTED)[number]) => {
  const [room, ...others] = codeOf(page, 'ts')
  const named = others.map(
    (code, index) => [`guide-${index}${code.includes('node:test') ? '.test' : ''}.ts`, code] as const,
  )
  return below(page, [[roomFile, room!], ...named])
}

describe('the guides', { timeout: COMPILES_MS }, () => {
  // One program, so that the compiler checks the imports only once.
  it('have code that compiles with the package', async () => {
    const shown = [
      'docs/rooms.md',
      'docs/client.md',
      'docs/guides/changing-state.md',
      'docs/guides/production.md',
      'docs/guides/coming-from-colyseus.md',
    ]
    const files = shown.flatMap((page) => {
      const code = codeOf(page, 'ts')
      expect(code.length, page).toBeGreaterThan(0)
      // A block without imports uses those of the first block.
      const imports = (code[0]!.match(/^import .*$/gm) ?? []).join('\n')
      return code.map((block, index) => {
        const whole = index === 0 || /^import /m.test(block) ? block : `${imports}\n${block}`
        return [`${basename(page, '.md')}-${index}.ts`, `${whole}\nexport {}\n`] as const
      })
    })
    const listed = codeOf('docs/rooms.md', 'ts').find((block) => block.includes('listing:'))
    const [move, walk, page] = codeOf('docs/guides/motion.md', 'ts')
    const motion = { 'rooms/walk/move.ts': move!, 'rooms/walk/room.ts': walk!, 'motion.ts': page! }
    const [match, ranked, queue, party, tested] = codeOf('docs/matchmaking.md', 'ts')
    const matchmaking = below('docs/matchmaking.md', [
      ['rooms/match.ts', match!],
      ['rooms/ranked.ts', ranked!],
      ['page.ts', `${queue}\n${party}`],
      ['queue.test.ts', tested!],
    ])
    const [react] = codeOf('docs/guides/react.md', 'tsx')
    const jsx = { 'react.tsx': `/** @jsxImportSource react */\n${react}` }
    const recipes = codeOf('docs/recipes.md', 'ts').map((block, index) => {
      const [, type] = /^ {2}type: '(.+)',$/m.exec(block) ?? []
      return [type ? `rooms/${type}.ts` : `recipe-${index}.ts`, block] as const
    })
    const [use, duel, backend] = codeOf('docs/backend.md', 'ts')
    const backendFiles = [
      ['use.ts', use!],
      ['rooms/duel.ts', duel!],
      ['backend.ts', backend!],
    ] as const
    const [table, play] = codeOf('docs/site/index.md', 'ts')
    const left = 'declare function draw(table: readonly number[], hand: readonly number[]): void'
    const front = [
      ['rooms/cards.ts', table!],
      ['src/main.ts', `${play}\n${left}\ndeclare function showError(): void\n`],
    ] as const
    const complained = await complaints({
      ...Object.fromEntries(files),
      'rooms/sketch.ts': listed!,
      ...jsx,
      ...motion,
      ...Object.fromEntries(matchmaking),
      ...Object.fromEntries(below('docs/recipes.md', recipes)),
      ...Object.fromEntries(below('docs/backend.md', backendFiles)),
      ...Object.fromEntries(below('docs/site/index.md', front)),
      ...Object.fromEntries(TESTED.flatMap(testedCode)),
    })
    expect(complained).toBe('')
  })

  it('docs/guides/first-game.md shows the files that npm create roomful writes', () => {
    const shown = codeOf('docs/guides/first-game.md', 'ts')
    const written = ['common/rooms/board.ts', 'templates/vanilla/src/main.ts', 'common/rooms/board.test.ts']
    expect(shown).toEqual(written.map((name) => textOf(`deploy/create/${name}`)))
  })

  it('have tests that pass', async () => {
    const files = Object.fromEntries(TESTED.flatMap(testedCode))
    await write(files)
    onTestFinished(() => rm(join(folder, 'shown'), { recursive: true }))
    const tests = Object.keys(files).filter((name) => name.endsWith('.test.ts'))
    expect(tests.length).toBeGreaterThanOrEqual(TESTED.length)
    const { stdout } = await run(process.execPath, ['--import', 'tsx', '--test', ...tests], {
      cwd: folder,
      env: { PATH: process.env.PATH, TSX_TSCONFIG_PATH: join(folder, 'tsconfig.json') },
    })
    const passed = TESTED.reduce((sum, [, , count]) => sum + count, 0)
    expect(stdout).toMatch(new RegExp(`^. pass ${passed}$`, 'm'))
  })
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
      const own = (name: string): boolean => textOf(page).includes(`$${name}`)
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
